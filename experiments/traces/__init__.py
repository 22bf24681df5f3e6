"""Sequences of keys as a stream brings them, made or real: `trace` gives one by name, `names` lists them.

>>> from srj.experiments.traces import trace
>>> zipf = trace("zipf", length=1000, distinct=100, relation=500, skew=0.5)
>>> zipf.length, int(zipf.keys().max()) < 500
(1000, True)
"""

from srj.experiments.traces.registry import describe, names, trace
from srj.experiments.traces.trace import Trace

__all__ = ["Trace", "describe", "names", "trace"]
