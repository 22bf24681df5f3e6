"""The thesis's figures and others, measured again: an experiment a file, one runner, and traces of keys.

`srj experiment list` shows them. Nothing here is needed to join a stream.
"""
