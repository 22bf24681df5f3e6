"""Reuse distances, curves and the pattern query."""
