"""The replacement policies."""
