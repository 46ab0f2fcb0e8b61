"""Invariant: when the whole broker dies at once (or its supervisor alone, which takes all with it), under load and at
any moment, a broker on the same store serves again, and every message that was ever acknowledged is where it was
acknowledged: once, in order, without a hole. The CommitLog's files are small, so that many deaths meet a roll."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the broker needs the compiled core")

from tests.support.broker import RunningBroker, running_broker
from tests.support.history import Load, check

SEED = int(os.environ.get("ROCKETPY_FAULT_SEED", random.SystemRandom().randrange(1 << 32)))
TOPICS = [("alpha", 4), ("beta", 4)]
SMALL_FILES = {"mappedFileSizeCommitLog": str(1 << 20), "maxMessageSize": "200000"}


def kill_supervisor(broker: RunningBroker) -> None:
    """SIGKILL to the root alone; its workers are to follow."""
    assert broker.process is not None
    workers = broker.workers()
    broker.process.kill()
    broker.process.wait()
    broker.process = None
    deadline = time.monotonic() + 30
    while alive := {name: pid for name, pid in workers.items() if is_running(pid)}:
        assert time.monotonic() < deadline, f"orphans: {alive}"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(("flush", "rounds"), [("ASYNC_FLUSH", 12), ("SYNC_FLUSH", 6)])
def test_what_was_acknowledged_survives_the_death_of_all(flush: str, rounds: int, tmp_path: Path) -> None:
    """With SYNC_FLUSH each life is a new interpreter, as an operator starts it; otherwise forks are faster.
    Holds: store, recovery after the death of broker, machine or files; cluster, at least once."""
    print(f"ROCKETPY_FAULT_SEED={SEED}")
    choose = random.Random(f"{SEED}/{flush}")
    settings = SMALL_FILES | {"flushDiskType": flush}
    loads = []
    with running_broker(settings, store=tmp_path / "store", is_new=flush == "SYNC_FLUSH") as broker:
        files = 0
        for turn in range(3 * rounds):
            if turn >= rounds and files > 2:
                break  # how much a turn stores is chance; recovery is to find several files
            if broker.process is None:
                broker.start()
            load = Load(broker.port, SEED + turn, TOPICS, new_topics=True, large_bytes=100_000)
            with load:
                load.wait_for_answers(1 + choose.randrange(400 if flush == "ASYNC_FLUSH" else 50))
                time.sleep(choose.random() * 0.01)
                if choose.random() < 0.5:
                    broker.kill_all()
                else:
                    kill_supervisor(broker)
            loads.append(load)
            if turn % 3 == 2:
                broker.start()
                print(f"{flush}, {turn + 1} deaths: {check(broker.port, loads)}")
            files = len(list((tmp_path / "store" / "commitlog").iterdir()))
        print(f"{files} files of the CommitLog")
        assert files > 2
        if broker.process is None:
            broker.start()
        assert broker.stop() == 0, broker.text()[-4000:]
