"""The thesis's figures and others, measured again: an experiment a file, one runner, and traces of keys.

`srj experiment list` shows them. Nothing here is needed to join a stream.

An experiment of one's own is a Python file that assigns an `srj.experiments.experiment.Experiment` to ``EXPERIMENT``; `srj
experiment run own.py` runs it as any other. Its cells are measured in processes of their own, one after another, and one counts
only if its output has the checksum of a plain join of the same rows (`srj.experiments.plain_join`).
"""
