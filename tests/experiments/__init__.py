"""Tests of the experiments: traces, the runner, the source of a given rate."""
