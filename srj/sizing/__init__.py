"""How large a cache should be: stack reuse distances, miss-ratio curves, and the pattern that says where more buys nothing."""

from srj.sizing.aet import ReuseTimes, aet_curve, reuse_times
from srj.sizing.curve import MissRatioCurve, combined
from srj.sizing.keys import hash_keys
from srj.sizing.pattern import Pattern, Phase
from srj.sizing.reuse_distance import FIRST_TOUCH, StackDistances, reuse_distances
from srj.sizing.sampling import EXACT_KEYS, Shards
from srj.sizing.split import Costs, best_size
from srj.sizing.watch import Watch

__all__ = [
    "EXACT_KEYS",
    "FIRST_TOUCH",
    "Costs",
    "MissRatioCurve",
    "Pattern",
    "Phase",
    "ReuseTimes",
    "Shards",
    "StackDistances",
    "Watch",
    "aet_curve",
    "best_size",
    "combined",
    "hash_keys",
    "reuse_distances",
    "reuse_times",
]
