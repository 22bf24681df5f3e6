"""LFU: the entry that was used least often since it came in leaves first."""

from __future__ import annotations

import cachetools

from srj.cache_policies.policy import Policy

LFU = Policy("lfu", exact=cachetools.LFUCache)
