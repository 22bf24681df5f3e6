"""Replacement policies, one file each: the exact policy and its vectorised rule for the columnar cache."""

from srj.cache_policies.lru import LRU
from srj.cache_policies.policy import Policy, Rule

__all__ = ["LRU", "Policy", "Rule"]
