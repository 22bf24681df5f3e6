"""Many workers on few cores: a lock that moves on is waited for."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from srj.lookup.map_lock import MapLock
from tests.shared_map import opened

if TYPE_CHECKING:
    from pathlib import Path


def test_who_waits_longer_than_its_patience_goes_on_while_others_take_their_turns(tmp_path: Path) -> None:
    """Each of twelve holds the lock for a third of the patience, five times."""
    map_file = opened(tmp_path)
    assert map_file is not None
    got: list[bool] = []

    def work() -> None:
        lock = MapLock(map_file, patience=0.06)
        for _ in range(5):
            with lock.exclusive() as held:
                got.append(held)
                time.sleep(0.02 * held)
        lock.close()

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [True] * 60
