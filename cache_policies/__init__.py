"""Replacement policies, one file each: the exact policy and, where there is an honest one, its vectorised rule.

>>> from srj.cache_policies import make, names
>>> names()[:14]
['lru', 'fifo', 'lfu', 'random', 'clock', 'sieve', 's3fifo', 'twoq', 'arc', 'wtinylfu', 'prob', 'life', 'heeb', 'opt']
"""

from srj.cache_policies.arc import ARC
from srj.cache_policies.checked import CheckedRule, checked_rule
from srj.cache_policies.clock import CLOCK
from srj.cache_policies.fifo import FIFO
from srj.cache_policies.heeb import HEEB
from srj.cache_policies.lfu import LFU
from srj.cache_policies.life import LIFE
from srj.cache_policies.lru import LRU
from srj.cache_policies.opt import OPT
from srj.cache_policies.policy import Policy, Rule
from srj.cache_policies.prob import PROB
from srj.cache_policies.random_ import RANDOM
from srj.cache_policies.registry import by_name, make, names, register
from srj.cache_policies.s3fifo import S3FIFO
from srj.cache_policies.sieve import SIEVE
from srj.cache_policies.simulation import Simulation, simulate
from srj.cache_policies.twoq import TWOQ
from srj.cache_policies.wtinylfu import WTINYLFU

__all__ = [
    "ARC",
    "CLOCK",
    "FIFO",
    "HEEB",
    "LFU",
    "LIFE",
    "LRU",
    "OPT",
    "PROB",
    "RANDOM",
    "S3FIFO",
    "SIEVE",
    "TWOQ",
    "WTINYLFU",
    "CheckedRule",
    "Policy",
    "Rule",
    "Simulation",
    "by_name",
    "checked_rule",
    "make",
    "names",
    "register",
    "simulate",
]
