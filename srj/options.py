"""What a user can set, parsed once: durations, sizes, and the options of `srj_enrich`.

Every mistake is a `RequestError` on the driver, in one sentence that names the option.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, get_args

from srj.cache_policies import Policy, by_name, checked_rule, names
from srj.errors import RequestError
from srj.lookup.order import Disorder, Order, Windows
from srj.quantities import near_to, nearest, one_of, parse_duration, parse_size, shown, whole_number
from srj.table import column_names

if TYPE_CHECKING:
    import cachetools

How = Literal["left", "inner", "semi", "anti"]
OnMultiple = Literal["all", "first", "error"]
Duration = str | int | float | timedelta | None
_MOST_KEYS = 100_000  # in a lookup
_AUTO_SIZES = (1, 10_000)  # beyond them answers are large, and gain little anywhere
_AUTO_IN_FLIGHT = (1, 8)
_MEMORY = "512 MB"  # of cache="auto" where nothing else is said
CacheFactory = Callable[[], "cachetools.Cache[Any, Any]"]
_S = TypeVar("_S")


def _check_names(given: Mapping[str, object], what: str, known: Mapping[str, object]) -> None:
    for name in given:
        if name not in known:
            raise RequestError(f"expected a known {what}, got {name!r}; {nearest(name, list(known))}")


def _named_arguments(settings: type[_S]) -> type[_S]:
    """Let a dataclass refuse unknown arguments as `srj_enrich` does, with the name that was meant."""
    init, known = settings.__init__, inspect.signature(settings).parameters

    @functools.wraps(init)
    def checked(self: _S, *args: Any, **given: Any) -> None:
        _check_names(given, f"argument of {settings.__name__}", known)
        init(self, *args, **given)

    settings.__init__ = checked  # type: ignore[assignment]  # what a dataclass itself does
    return settings


@contextmanager
def _or_auto(value: object) -> Iterator[None]:
    """What is refused here may have been meant as 'auto'."""
    try:
        yield
    except RequestError as error:
        if isinstance(value, str) and near_to(value, ["auto"]):
            raise RequestError(f"{error}; did you mean 'auto'?") from None
        raise


@_named_arguments
@dataclass(frozen=True, kw_only=True)
class Cache:
    """How answers are remembered, for ``cache=``.

    Args:
        size: memory (``"128 MB"``, or bytes as an int) or rows (``"1_000_000 rows"``, with at most 1 kB a value on average; so many
            keys, unless the database expects several rows of a key);
            ``"auto"``: srj divides `memory` between the cache and the rows that wait, by what the stream's keys show.
        policy: what is evicted when it is full, by name: ``"lru"`` (the least recently used), ``"fifo"``, ``"lfu"``, ``"clock"``,
            ``"sieve"``, ``"random"`` or one that was registered with `srj.cache_policies.register`; or a `Policy` with a rule.
        ttl: how long a row may be served, from the start of the lookup that found it; None: for ever.
        missing_ttl: how long the fact may be served that a key has no row.
        shared: whether all Python workers of an executor have one, of this size; else each has its own.
        memory: with ``size="auto"``, for the cache and for the rows that wait in all workers that share it; 512 MB by default. The
            argument ``memory`` of `srj_enrich` wins.

    Example:
        >>> Cache(size="64 MB", ttl="1 h")
        Cache(size='64 MB', policy='lru', ttl='1 h', missing_ttl='1 min', shared=True, memory=None)
    """

    size: str | int = "128 MB"
    policy: str | Policy = "lru"
    ttl: Duration = "10 min"
    missing_ttl: Duration = "1 min"
    shared: bool = True
    memory: str | int | None = None
    # The policy itself goes to the workers: they don't know what was registered here.
    chosen: Policy = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.is_auto:
            with _or_auto(self.size):
                parse_size(self.size, others="'auto', ")
            if self.memory is not None:
                raise RequestError(
                    f"expected memory only with cache='auto', which divides it, got {shown(self.memory)}; write cache='auto', or "
                    "leave memory out"
                )
        elif self.memory is not None:
            self._check_memory()
        object.__setattr__(self, "chosen", _policy_with_rule(self.policy))
        parse_duration("ttl", self.ttl)
        parse_duration("missing_ttl", self.missing_ttl)
        one_of("shared", self.shared, (True, False))

    def _check_memory(self) -> None:
        try:
            is_bytes = parse_size(self.memory)[1] == "bytes"
        except RequestError:
            is_bytes = False
        if not is_bytes:
            raise RequestError(f"expected memory as bytes such as '512 MB', got {shown(self.memory)}")

    @property
    def is_auto(self) -> bool:
        """Whether srj chooses its size."""
        return isinstance(self.size, str) and self.size == "auto"

    @property
    def memory_bytes(self) -> int:
        """Bytes to be divided, where srj chooses."""
        return parse_size(_MEMORY if self.memory is None else self.memory)[0]


def _policy_with_rule(given: object) -> Policy:
    """The policy that was named, if the columnar cache can follow it."""
    if not isinstance(given, (str, Policy)):
        raise RequestError(f"expected policy as a name such as 'lru' or a Policy, got {shown(given)}")
    policy = by_name(given, with_rule=True) if isinstance(given, str) else given
    if policy.rule is None:
        raise RequestError(
            f"expected a policy with a vectorised rule, got {policy.name!r}, which has only its exact form; {_instead(policy)}"
        )
    checked_rule(policy)
    return policy


def _instead(policy: Policy) -> str:
    if policy.offline:
        return "it has to be told the future, so choose another"
    if policy.name in names():
        return f"choose another, or give cache=lambda: srj.cache_policies.make({policy.name!r}, 100_000)"
    return "choose another, or give cache a function that makes a cachetools cache"


@_named_arguments
@dataclass(frozen=True, kw_only=True)
class Batch:
    """How missing keys are asked, for ``batch=``.

    Args:
        size: most keys in one lookup; ``(least, most)``: srj chooses within; ``"auto"``: within 1 and 10,000. Where rows are large,
            so many fewer that they fill about 4 MB.
        in_flight: lookups sent at a time, each over its own connection, by each Spark worker process; ``"auto"``: srj tries out 1
            to 8.
        connections: that all Python workers of an executor together have open to this database. Where several joins ask the same
            database as the same user, these are counted together, and each keeps to its own bound.
        max_wait: how long a missing key may wait for its batch to fill while the stream goes on.
        latency: a goal for the time from sending a lookup to its answer, which bounds the sizes that srj chooses; at most, and for
            None, a quarter of ``lookup_timeout``.

    Example:
        >>> Batch(size=300, in_flight=2)
        Batch(size=300, in_flight=2, connections=8, max_wait='20 ms', latency=None)
    """

    size: int | tuple[int, int] | Literal["auto"] = "auto"
    in_flight: int | Literal["auto"] = "auto"
    connections: int = 8
    max_wait: Duration = "20 ms"
    latency: Duration = None

    def __post_init__(self) -> None:
        if isinstance(self.size, (tuple, list)):
            if len(self.size) != 2 or [whole_number("batch size", size, 1, _MOST_KEYS) for size in self.size] != sorted(self.size):
                raise RequestError(
                    f"expected a range of batch sizes as (least, most), got {shown(self.size)}; write for example (100, 5000)"
                )
            object.__setattr__(self, "size", tuple(self.size))  # TOML has lists
        elif not (isinstance(self.size, str) and self.size == "auto"):
            with _or_auto(self.size):
                whole_number("batch size", self.size, 1, _MOST_KEYS, others=", 'auto' or a range such as (100, 2000)")
        if not (isinstance(self.in_flight, str) and self.in_flight == "auto"):
            with _or_auto(self.in_flight):
                whole_number("in_flight", self.in_flight, 1, 64, others=" or 'auto'")
        whole_number("connections", self.connections, 1, 10_000)
        if isinstance(self.in_flight, int) and self.in_flight > self.connections:
            raise RequestError(
                f"expected in_flight of at most connections={self.connections}, which all workers of an executor share, got "
                f"{self.in_flight}; let connections be more"
            )
        if parse_duration("max_wait", self.max_wait) is None:
            raise RequestError(
                f"expected max_wait as a duration, got {self.max_wait!r}, which would wait for ever; write for example '20 ms'"
            )
        parse_duration("latency", self.latency)

    @property
    def sizes(self) -> tuple[int, int]:
        """The least and the most keys in a lookup."""
        if isinstance(self.size, tuple):
            return self.size
        return _AUTO_SIZES if isinstance(self.size, str) else (self.size, self.size)

    @property
    def flights(self) -> tuple[int, int]:
        """The least and the most lookups at a time."""
        least, most = _AUTO_IN_FLIGHT if isinstance(self.in_flight, str) else (self.in_flight, self.in_flight)
        return min(least, self.connections), min(most, self.connections)

    @property
    def wait(self) -> float:
        """`max_wait` in seconds."""
        return parse_duration("max_wait", self.max_wait) or 0.0

    @property
    def goal(self) -> float | None:
        """`latency` in seconds."""
        return parse_duration("latency", self.latency)


class Options(TypedDict, total=False):
    """The keyword arguments of `srj_enrich`, which is where they are explained."""

    how: How
    columns: Sequence[str] | None
    where: str | None
    prefix: str
    on_multiple: OnMultiple
    order_by: str | None
    order: Order
    punctuate: bool
    cache: Cache | CacheFactory | str | int
    memory: str | int | None
    ttl: Duration
    missing_ttl: Duration
    batch: Batch | Literal["auto"] | int | tuple[int, int]
    connect_timeout: Duration
    lookup_timeout: Duration
    retries: int
    metrics: bool
    config: str | Path | None


@dataclass(frozen=True, kw_only=True)
class LookupSettings:
    """What of the options concerns the lookups themselves, wherever their rows go; durations in seconds."""

    cache: Cache | CacheFactory = Cache()
    ttl: float | None = 600.0
    missing_ttl: float | None = 60.0
    batch: Batch = Batch()
    connect_timeout: float = 10.0
    lookup_timeout: float = 30.0
    retries: int = 3


@dataclass(frozen=True, kw_only=True)
class Settings:
    """`Options` after parsing: everything present and of one type."""

    how: How = "left"
    columns: tuple[str, ...] | None = None
    where: str | None = None
    prefix: str = ""
    on_multiple: OnMultiple = "all"
    order_by: str | None = None
    order: Order = "input"
    punctuate: bool = False
    metrics: bool = True
    lookup: LookupSettings = LookupSettings()


def parse_options(options: Options) -> Settings:
    """Check the options, those of the ``config`` file included; what is given as an argument wins.

    >>> parse_options({"how": "inner", "ttl": "1 h"}).lookup.ttl
    3600.0
    """
    given: dict[str, Any] = dict(options)
    config = given.pop("config", None)
    _check_names(given, "option", Options.__annotations__)
    merged = ({} if config is None else read_config(config)) | given
    if "cache" in given and "memory" not in given:
        merged.pop("memory", None)  # it belonged to the cache that the argument has replaced
    return _settings(merged)


def read_config(path: str | Path) -> dict[str, Any]:
    """Read a TOML file with the names of `Options`; tables ``[cache]``, ``[batch]``, ``[order]`` become what they are called.

    ``[order]`` holds ``max``, for a `Disorder`, or ``windows`` and ``position``, for `Windows`.
    """
    if not isinstance(path, (str, Path)) or "\0" in str(path):
        raise RequestError(f"expected config as the path of a TOML file, got {shown(path)}")
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise RequestError(f"expected a TOML file for config, got {str(path)!r}, which can't be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"expected TOML in {str(path)!r}, got a text that is not: {error}") from None
    _check_names(content, f"name in {str(path)!r}", {name: None for name in Options.__annotations__ if name != "config"})
    if isinstance(content.get("order"), dict):
        content["order"] = _order_table(content["order"], str(path))
    for name, settings in (("cache", Cache), ("batch", Batch)):
        if isinstance(content.get(name), dict):
            known = {each.name: None for each in fields(settings) if each.init}
            _check_names(content[name], f"name in [{name}] of {str(path)!r}", known)
            content[name] = settings(**content[name])
    return content


def _settings(values: dict[str, Any]) -> Settings:
    """Bring each option to its one type."""
    defaults = Settings()
    columns = values.get("columns")
    settings = Settings(
        how=one_of("how", values.get("how", defaults.how), get_args(How)),
        columns=None if columns is None else column_names(columns),
        where=_text("where", values.get("where")),
        prefix=_text("prefix", values.get("prefix", "")) or "",
        on_multiple=one_of("on_multiple", values.get("on_multiple", defaults.on_multiple), get_args(OnMultiple)),
        order_by=_text("order_by", values.get("order_by")),
        order=_order(values.get("order", defaults.order)),
        punctuate=one_of("punctuate", values.get("punctuate", defaults.punctuate), (True, False)),
        metrics=one_of("metrics", values.get("metrics", defaults.metrics), (True, False)),
        lookup=_lookup_settings(values, defaults.lookup),
    )
    if settings.order_by is not None and settings.on_multiple != "first":
        raise RequestError(f"expected order_by only with on_multiple='first', got on_multiple={settings.on_multiple!r}; drop one")
    if settings.punctuate and settings.order == "input":
        raise RequestError(
            "expected punctuate only where rows may leave out of their order, got order='input', the default, under which they "
            "never do; give another order, such as Disorder(max=1000), or leave punctuate out"
        )
    if settings.how in ("semi", "anti") and (settings.columns is not None or settings.prefix):
        raise RequestError(f"expected no columns or prefix with how={settings.how!r}, which adds no column; drop them")
    return settings


def _lookup_settings(values: dict[str, Any], defaults: LookupSettings) -> LookupSettings:
    cache, batch = values.get("cache", defaults.cache), values.get("batch", defaults.batch)
    memory = values.get("memory")
    if isinstance(cache, (str, int)) and not isinstance(cache, bool):
        cache = Cache(size=cache, memory=memory)
    elif isinstance(cache, Cache) and memory is not None:
        cache = replace(cache, memory=memory)
    elif memory is not None:
        raise RequestError(
            "expected memory only with cache='auto', which divides it, got a function that makes a cache; leave it out"
        )
    elif not isinstance(cache, Cache) and not callable(cache):
        advice = "write cache=srj.Cache(size='128 MB', …)" if isinstance(cache, Mapping) else "try '128 MB'"
        raise RequestError(f"expected cache as a size, a Cache or a factory of a cachetools.Cache, got {shown(cache)}; {advice}")
    if not isinstance(batch, Batch):
        batch = Batch(size=batch)
    own_ttl, own_missing = (cache.ttl, cache.missing_ttl) if isinstance(cache, Cache) else (defaults.ttl, defaults.missing_ttl)
    return LookupSettings(
        cache=cache,
        ttl=parse_duration("ttl", values.get("ttl", own_ttl)),
        missing_ttl=parse_duration("missing_ttl", values.get("missing_ttl", own_missing)),
        batch=batch,
        connect_timeout=_finite("connect_timeout", values.get("connect_timeout", defaults.connect_timeout)),
        lookup_timeout=_finite("lookup_timeout", values.get("lookup_timeout", defaults.lookup_timeout)),
        retries=whole_number("retries", values.get("retries", defaults.retries), 0, 100),
    )


def _order(given: object) -> Order:
    if isinstance(given, (Disorder, Windows)):
        return given
    if isinstance(given, str) and given in ("input", "any"):
        return "input" if given == "input" else "any"
    hint = "Disorder(max=0) is the input's order"
    if isinstance(given, str):
        near = difflib.get_close_matches(given.strip().lower(), ("input", "any"), n=1)
        hint = f"did you mean {near[0]!r}?" if near else hint
    elif isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        hint = f"write Disorder(max={given})"
    raise RequestError(f"expected order as 'input', 'any', Disorder(max=…) or Windows(…), got {shown(given)}; {hint}")


def _order_table(table: dict[str, Any], path: str) -> Order:
    known: dict[str, object] = {"max": None, "windows": None, "position": None}
    _check_names(table, f"name in [order] of {path!r}", known)
    if "max" in table and len(table) == 1:
        return Disorder(max=table["max"])
    windows = table.get("windows")
    if "max" in table or not isinstance(windows, list):
        raise RequestError(
            f"expected max, or windows as a list, in [order] of {path!r}, got {table}; write windows = [10, [100, 20]]"
        )
    return Windows(*(tuple(window) if isinstance(window, list) else window for window in windows), position=table.get("position"))


def _text(name: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise RequestError(f"expected {name} as a text, got {shown(value)}")
    return value


def _finite(name: str, value: object) -> float:
    seconds = parse_duration(name, value)
    if seconds is None:
        raise RequestError(f"expected {name} as a duration such as '30 s', got {value!r}, which would wait for ever")
    return seconds
