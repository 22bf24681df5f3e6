"""The tests of srj."""
