"""The tuner behind `srj tune` and `srj.profile`: policy and size of the cache for a trace of keys."""

from srj.tuning.dataframe import profile
from srj.tuning.keys import KeySequence
from srj.tuning.pick import Pick, pick
from srj.tuning.prices import Prices, priced
from srj.tuning.reading import read_trace
from srj.tuning.simulating import MiniSimulation, Trial, lru_curve, usable
from srj.tuning.tuning import PolicyCurve, Recommendation, Tuning, tune

__all__ = [
    "KeySequence",
    "MiniSimulation",
    "Pick",
    "PolicyCurve",
    "Prices",
    "Recommendation",
    "Trial",
    "Tuning",
    "lru_curve",
    "pick",
    "priced",
    "profile",
    "read_trace",
    "tune",
    "usable",
]
