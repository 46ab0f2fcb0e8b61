"""Transactions, crashed between the records of their ends, their states and the file of their progress.

`python -m tests.support.crash.transactions --seed 1 --crashes 1000`

A life is one store before a send worker that serves half messages and their ends, stores open ones again, and has its
progress saved. At chosen points it is looked at what a crash would leave: the send worker dies alone (the shared states
stay), all processes die, or the power fails. Then every half message that is there is ended again, as its producer
would, twice. In the end each transaction that commits was delivered exactly once, each one that rolls back never, and
each half message has exactly one op message.
"""

from __future__ import annotations

from tests.support.crash import core

core.load()  # before anything of rocketpy

import sys  # noqa: E402  the core comes first
from collections import Counter  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import attrs  # noqa: E402
import trio  # noqa: E402

from rocketpy.broker.fast_path.shared_memory import SharedHalfStates  # noqa: E402
from rocketpy.broker.managers.consumer_offset import ConsumerOffsetManager  # noqa: E402
from rocketpy.broker.transactions.transaction_progress import TransactionProgress  # noqa: E402
from rocketpy.message import names  # noqa: E402
from rocketpy.message.record import StoredRecord, decode_records  # noqa: E402
from rocketpy.native.core import ffi, lib  # noqa: E402
from rocketpy.processes.boot.half_messages import recovered_half_states  # noqa: E402
from rocketpy.processes.boot.table_check import check_tables  # noqa: E402
from rocketpy.store.recovery.lifecycle import close_store, open_store  # noqa: E402
from tests.support.crash.seeded import SeededLife, run_lives  # noqa: E402
from tests.support.fake_store import FakeStore  # noqa: E402
from tests.support.fast_path import FastPath  # noqa: E402
from tests.support.half_messages import COMMIT, ROLLBACK, end, half, renew, send_half  # noqa: E402
from tests.support.shared_memory import remove_half_states  # noqa: E402
from tests.support.store_writer import small_config  # noqa: E402

LOOKED_AT = 0.25  # of the points that are reached
STATES_COPIED = 65_536  # bytes: the header, renewals, and the states of more half messages than a life has
ANSWERS = ((0, ""), (1, "the transaction has ended before, or was discarded"))


@attrs.define
class Half:
    """As its producer knows it."""

    key: str
    place: tuple[int, int]
    action: int  # how it ends
    last: tuple[int, int] = attrs.field(default=attrs.Factory(lambda self: self.place, takes_self=True))
    """Where it was stored again; its producer knows `place`."""
    ended_at: int | None = None  # end of the log when its end was acknowledged


class Life(SeededLife):
    """Half messages that are sent and ended."""

    operations_max = 60
    kinds_of_crash = ("send worker", "death", "power")
    points = ("end.", "half.", "append.", "roll.", "life.config")
    written_back = 0.05

    def open(self) -> Any:
        self._halves: list[Half] = []
        close_store(open_store(_config(self.root)), clean=False)
        self._states = SharedHalfStates()
        self._rig = _rig(self.root, self._states)
        config, self._store = self.root / "config", FakeStore(lambda: 0)
        self._progress = TransactionProgress(config, self._store, ConsumerOffsetManager(config / "consumerOffset.json"))
        return lib.rp_control_header(self._rig.block)

    def close(self) -> None:
        _close(self._rig, self._states)

    def share(self, point: str) -> float:
        return LOOKED_AT

    def operate(self) -> None:
        rng, still = self.rng, [half for half in self._halves if half.ended_at is None]
        what = rng.random()
        if what < 0.1:
            self.flush()
        elif what < 0.2:
            self._save_progress()
        elif what < 0.25 and still:
            chosen = rng.choice(still)
            offset = renew(self._rig, chosen.last)
            chosen.last = offset, _halves(_records(self._rig))[offset].phy_offset
        elif what < 0.5 and still:
            chosen = rng.choice(still)
            answer = end(self._rig, chosen.place, chosen.action)
            assert answer == (0, ""), f"the end of {chosen.key} is answered {answer}"
            chosen.ended_at = _published(self._rig)
        else:
            key = f"u{len(self._halves)}"
            properties = f"TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01{key}\x02x\x01{'x' * rng.randrange(900)}"
            self._halves.append(Half(key, send_half(self._rig, half(properties)), rng.choice((COMMIT, ROLLBACK))))

    def _save_progress(self) -> None:
        """As the manager does, at any time."""
        control, count = lib.rp_control_header(self._rig.block), len(_halves(_records(self._rig)))
        self._store.end, self._store.durable = int(control.published_phy_offset), int(control.durable_phy_offset)
        self._states.move_base(self._states.next_open(self._states.base, count))
        self._progress.propose(self._states.base, 0)
        if self.rng.random() < 0.7:
            trio.run(self._progress.file.save)

    # --- aftermath ---

    def look(self, kind: str, root: Path) -> None:
        control = lib.rp_control_header(self._rig.block)
        certain = int(control.durable_phy_offset if kind == "power" else control.published_phy_offset)
        disk = self.disk.lose_power(root, self.rng) if kind == "power" else self.disk.survive(root)
        states = _copy(self._states) if kind == "send worker" else _recovered(disk.root)
        rig = _rig(disk.root, states)
        try:
            self._validate(rig, states, certain)
        finally:
            _close(rig, states)
        if kind != "send worker":  # whatever was done about it is known to the next start as well
            states = _recovered(disk.root)
            assert states.next_open(states.base, self._there) == self._there, "an ended transaction is open again"
            remove_half_states(states.pointer)

    def _validate(self, rig: FastPath, states: SharedHalfStates, certain: int) -> None:
        actions = {half.key: half.action for half in self._halves}
        there, delivered, ops = _seen(rig)
        self._there, last = len(there), {_key(record): offset for offset, record in sorted(there.items())}
        assert sorted(there) == list(range(len(there)))
        for known in self._halves:
            if known.place[1] < certain:
                assert _key(there[known.place[0]]) == known.key, "an acknowledged half message is lost"
            if known.ended_at is not None and known.ended_at <= certain:
                assert not states.is_open(last[known.key]), "an acknowledged end is lost"
        for offset, record in there.items():
            key, has_ended = _key(record), ops[offset] > 0
            assert states.is_open(offset) is not has_ended, f"the state of {offset} is not what the log says"
            if offset == last[key]:
                is_due = has_ended and actions.get(key, COMMIT) == COMMIT
                assert delivered[key] == is_due, f"{offset} was delivered {delivered[key]} times"
            else:
                assert has_ended, f"{offset} was stored again, and is open"
        for offset, record in there.items():
            for _ in range(2):
                answer = end(rig, (offset, record.phy_offset), actions.get(_key(record), COMMIT))
                assert answer in ANSWERS, f"the end of {offset} is answered {answer}"
        there, delivered, ops = _seen(rig)
        assert ops == dict.fromkeys(there, 1), f"op messages {ops}"
        for record in there.values():
            key, times = _key(record), delivered[_key(record)]
            assert times == (actions.get(key, COMMIT) == COMMIT), f"{record.queue_offset} was delivered {times} times"


def _config(root: Path) -> object:
    return small_config(root, message_index_enable=False)


def _rig(root: Path, states: SharedHalfStates) -> FastPath:
    """Workers on the store, with empty rings."""
    config = small_config(root)
    rig = FastPath(
        root,
        half_states=states.pointer,
        file_size=config.mapped_file_size_commit_log,
        cq_file_size=config.mapped_file_size_consume_queue,
    )
    for topic in (names.TRANS_HALF_TOPIC, names.TRANS_OP_HALF_TOPIC):
        rig.add_topic(topic, 1, flags=lib.RP_TOPIC_NO_SEND)
    rig.add_topic("T", 4)
    rig.tables_end()
    return rig


def _close(rig: FastPath, states: SharedHalfStates) -> None:
    rig.close()
    remove_half_states(states.pointer)


def _copy(states: SharedHalfStates) -> SharedHalfStates:
    """The shared memory as a restarted send worker finds it."""
    copy = SharedHalfStates()
    ffi.memmove(copy.pointer, states.pointer, STATES_COPIED)
    return copy


def _recovered(root: Path) -> SharedHalfStates:
    """The states as a start of the broker finds them."""
    opened = open_store(_config(root))  # type: ignore[arg-type]
    check_tables(opened)
    states = recovered_half_states(opened)
    close_store(opened, clean=False)
    return states


def _halves(records: list[StoredRecord]) -> dict[int, StoredRecord]:
    return {record.queue_offset: record for record in records if record.topic == names.TRANS_HALF_TOPIC}


def _seen(rig: FastPath) -> tuple[dict[int, StoredRecord], Counter[str], Counter[int]]:
    """What the log has: half messages by offset, deliveries by key, op messages by offset of the half message."""
    found = _records(rig)
    delivered = Counter(_key(record) for record in found if record.topic == "T")
    ops = Counter(int(record.body) for record in found if record.topic == names.TRANS_OP_HALF_TOPIC)
    return _halves(found), delivered, ops


def _published(rig: FastPath) -> int:
    return int(lib.rp_control_header(rig.block).published_phy_offset)


def _records(rig: FastPath) -> list[StoredRecord]:
    published, found = _published(rig), []
    for start in range(0, published, rig.file_size):
        found += decode_records(rig.log(start, min(rig.file_size, published - start)), check_crc=True)
    return found


def _key(record: StoredRecord) -> str:
    return record.properties.decode().split("UNIQ_KEY\x01")[1].split("\x02")[0]


if __name__ == "__main__":
    sys.exit(run_lives(Life))
