"""A slave whose log stream is cut at any moment while it copies its master's tables, and that dies then.

`python -m tests.support.crash.cut_slave --seed 1 --crashes 1000`

A life is a master that makes topics, delivers delayed messages, ends transactions and has groups that commit, and a
slave that gets the log in one stream and the tables by SlaveSynchronize. Between a question and its answer, too, the
log comes, the master goes on, or the stream ends. Now and then the slave is stopped or dies and follows again, or the
master loses the end of its log that the slave does not have. At chosen points it is looked at what a crash of the slave
would leave: all processes die, or the power fails. It is opened as a slave, or as the new master, or as one after the
other. No table presumes more than the log has; as the master it knows the topic of each message of its log, delivers
each delayed message and ends each open transaction, and what was lowered does not come back.

No topic is deleted: queues are deleted by the store worker.
"""

from __future__ import annotations

from tests.support.crash import core

core.load()  # before anything of rocketpy

import os  # noqa: E402  the core comes first
import random  # noqa: E402
import shutil  # noqa: E402
import sys  # noqa: E402
import threading  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import attrs  # noqa: E402
import trio  # noqa: E402
import trio.testing  # noqa: E402

from rocketpy.message import names  # noqa: E402
from rocketpy.message.record import StoredRecord  # noqa: E402
from rocketpy.message.sys_flag import TRANSACTION_MASK  # noqa: E402
from rocketpy.native.core import lib  # noqa: E402
from rocketpy.remoting.command import RemotingCommand  # noqa: E402
from rocketpy.remoting.fast_path import MessageToPut  # noqa: E402
from tests.support.crash.broker import FILE_SIZE, Broker  # noqa: E402
from tests.support.crash.seeded import SeededLife, run_lives  # noqa: E402
from tests.support.half_messages import COMMIT, ROLLBACK, end, half, send_half  # noqa: E402
from tests.support.reopened_store import lose_log_from  # noqa: E402

MASTER = "10.0.0.9:10911"
GROUP, LEVELS, QUEUES = "G", (1, 2), 2
FIRST_TOPIC = "T"
SHARES = {"life.config": 0.08, "life.operated": 0.1, "copy.": 0.1, "receive.": 0.02, "append.": 0.02}
BODIES = (10, 200, 2000)
CHUNKS = ((30, 300), (300, 2000), (300, 20_000))  # of a life: on most links the log is behind the tables
NEW_TOPIC = 0.4  # of the messages
LATER = 6  # messages that are put after a promotion
ON_THE_MASTER = {"plain": 6, "delayed": 8, "half": 6, "end": 8, "deliver": 10, "commit": 8, "propose": 5}
BETWEEN = ON_THE_MASTER | {"stream": 20, "cut": 4}  # what happens while the slave waits for an answer
ALONE = BETWEEN | {"copy": 14, "save": 14, "flush": 8, "lose": 2, "restart": 4}
BETWEEN_MAX = 8
CATCH_UP_S = 600.0  # on a clock that jumps


@attrs.define
class Half:
    """A half message of the master. `ended_at`: the end of the log when its end was acknowledged."""

    place: tuple[int, int]
    ended_at: int | None = None


def in_thread(work: Callable[..., object], *arguments: object) -> None:
    """Run what has a trio loop of its own; another loop may be running here."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work(*arguments)
        except BaseException as exc:
            failures.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


class Life(SeededLife):
    """A slave that follows a master."""

    operations_max = 80
    kinds_of_crash = ("death", "power", "power")
    points = tuple(SHARES)
    written_back = 0.05

    def open(self) -> Any:
        self._count, self._topics, self._halves = 0, [FIRST_TOPIC], list[Half]()
        self._chunks = self.rng.choice(CHUNKS)
        self._master = Broker.open(self._base / "master", is_slave=False)
        self._create(FIRST_TOPIC)
        self._ends = [0]  # of the master's log, after each operation
        self._follow()
        return self._slave.control.header

    def close(self) -> None:
        self._slave.close()
        self._master.close()

    def share(self, point: str) -> float:
        return next(share for begin, share in SHARES.items() if point.startswith(begin))

    def operate(self) -> None:
        self._do(ALONE)
        self._look_at("life.operated")

    def _do(self, weights: dict[str, int]) -> None:
        what = self.rng.choices(list(weights), list(weights.values()))[0]
        if what not in ON_THE_MASTER:
            getattr(self, f"_{what}")()
            return
        with self.taps.listening(None):
            getattr(self, f"_{what}")()
        self._ends.append(self._master.end)

    # --- the master -----------------------------------------------------------------------------------------------

    def _create(self, topic: str) -> None:
        """As a send does: the topic is saved before the send is acknowledged."""
        topics = self._master.rig.services.topics
        topics.create_in_send(topic, default_topic="TBW102", client_queue_nums=4, topic_sys_flag=0)
        in_thread(trio.run, topics.file.save)

    def _a_topic(self) -> str:
        if self.rng.random() < NEW_TOPIC:
            self._topics.append(f"N{len(self._topics)}")
            self._create(self._topics[-1])
        return self.rng.choice(self._topics)

    def _key(self) -> str:
        self._count += 1
        return f"u{self._count}"

    def _plain(self) -> None:
        topic, queue_id = self._a_topic(), self.rng.randrange(QUEUES)
        _put(self._master, topic, queue_id, f"UNIQ_KEY\x01{self._key()}", self.rng.choice(BODIES))

    def _delayed(self) -> None:
        level, topic = self.rng.choice(LEVELS), self._a_topic()
        properties = f"DELAY\x01{level}\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x010\x02UNIQ_KEY\x01{self._key()}\x02"
        _put(self._master, names.SCHEDULE_TOPIC, level - 1, properties, self.rng.choice(BODIES))

    def _half(self) -> None:
        command = half(f"TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01{self._key()}")
        assert command.ext_fields is not None
        command.ext_fields["topic"] = self._a_topic()
        self._halves.append(Half(send_half(self._master.path, command)))

    def _end(self) -> None:
        still = [half for half in self._halves if half.ended_at is None]
        if still:
            chosen = self.rng.choice(still)
            assert end(self._master.path, chosen.place, self.rng.choice((COMMIT, ROLLBACK))) == (0, "")
            chosen.ended_at = self._master.end

    def _deliver(self) -> None:
        self._master.fast_path.room = self.rng.randrange(1, 4)
        in_thread(trio.run, self._master.rig.services.schedule.deliver_due, self.rng.choice(LEVELS))

    def _commit(self) -> None:
        topic, queue_id = self.rng.choice(self._topics), self.rng.randrange(QUEUES)
        end_of = self._master.store.max_offset(topic, queue_id)
        offset = self.rng.randrange(end_of // 2, end_of + 1)
        self._master.rig.services.offsets.commit(GROUP, topic, queue_id, offset)

    def _propose(self) -> None:
        self._master.rig.services.transactions.keep_progress()

    def _lose(self) -> None:
        """The power of the master's machine fails; the slave has a part of what its log keeps."""
        self._is_connected = False
        with self.taps.listening(None):
            services = self._master.rig.services
            for file in (services.schedule.file, services.offsets.file, services.transactions.progress.file):
                if self.rng.random() < 0.5:
                    in_thread(trio.run, file.save)
            self._master.close()
            kept = self.rng.choice([end for end in self._ends if end >= self._slave.end])
            lose_log_from(self._master.root, FILE_SIZE, kept)
            self._master = Broker.open(self._master.root, is_slave=False)
            assert self._master.end == kept, f"the master's log ends at {self._master.end}, not at {kept}"
        self._ends = [end for end in self._ends if end <= kept]
        self._halves = [half for half in self._halves if half.place[1] < kept]
        for known in self._halves:
            if known.ended_at is not None and known.ended_at > kept:
                known.ended_at = None

    # --- the slave ------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Open the slave's store, and follow the master."""
        self._slave = slave = Broker.open(self.root, is_slave=True)
        self._copier = slave.rig.broker.table_copier
        slave.rig.name_servers.invoke = self._invoke  # type: ignore[method-assign]
        self._copier.followed = lambda: MASTER if self._is_connected else ""
        self._copier.stream = lambda: slave.path.stream
        self._connect()

    def _connect(self) -> None:
        self._slave.path.begin_stream()
        self._next, self._is_connected = self._slave.end, True

    def _stream(self) -> None:
        """Some bytes of the log arrive."""
        if not self._is_connected:
            return
        if data := self._master.log(self._next, min(self._next + self.rng.choice(self._chunks), self._master.end)):
            self._slave.path.chunk(self._next, data)
            self._next += len(data)
            self._slave.path.turn()
        assert self._slave.path.refused != self._slave.path.stream, "the slave refuses its master's log"

    def _cut(self) -> None:
        self._is_connected = False

    def _copy(self) -> None:
        """A round of copying; a stream that was cut begins again first."""
        if not self._is_connected:
            self._connect()
        in_thread(trio.run, self._copier.copy)

    async def _invoke(self, address: str, request: RemotingCommand, timeout_s: float) -> RemotingCommand:
        await trio.lowlevel.checkpoint()
        self._meanwhile("copy.asked")
        with self.taps.listening(None):
            answer = await self._master.rig.ask(request.code, dict(request.ext_fields or {}))
        self._meanwhile("copy.answered")
        return RemotingCommand.decode(answer.encode())

    def _meanwhile(self, point: str) -> None:
        for _ in range(self.rng.randrange(BETWEEN_MAX)):
            self._do(BETWEEN)
        self._look_at(point)

    def _look_at(self, point: str) -> None:
        with self.taps.listening(None):
            self.reach(point)

    def _save(self) -> None:
        """The duties of the tables."""
        services = self._slave.rig.services
        progress = services.transactions.progress
        for table in (services.topics, services.offsets, services.schedule, progress):
            if self.rng.random() < 0.7:
                in_thread(trio.run, table.file.save)

    def _flush(self) -> None:
        self.flush()

    def _restart(self) -> None:
        """The slave stops in order, dies, or its power fails; it follows again."""
        how = self.rng.choice(("stop", "death", "power"))
        if how == "stop":
            in_thread(trio.run, _stop_in_order, self._slave)
        lib.rp_flush_close(self._flush_handle)
        self._slave.close()
        if how == "power":
            before, self._copies = self.root, self._copies + 1
            with self.taps.listening(None):
                self.disk = self.disk.lose_power(self._base / f"{self._copies}", self._another_rng())
            self.root = self.disk.root
            shutil.rmtree(before)
        self._follow()
        self._flush_handle = lib.rp_flush_open(os.fsencode(self.root / "commitlog"), self._slave.control.header)

    # --- aftermath ------------------------------------------------------------------------------------------------

    def look(self, kind: str, root: Path) -> None:
        rng = self._another_rng()
        disk = self.disk.lose_power(root, rng) if kind == "power" else self.disk.survive(root)
        in_thread(self._look, disk.root, rng)

    def _another_rng(self) -> random.Random:
        """What a disk keeps takes as many numbers as it has sectors that differ: the life goes on with its own."""
        return random.Random(self.rng.random())

    def _look(self, root: Path, rng: random.Random) -> None:
        for _ in range(rng.randrange(3)):
            slave = Broker.open(root, is_slave=True)
            _check_tables(slave, self._topics)
            slave.close()
        master = Broker.open(root, is_slave=False)
        _check_master(master, self._topics)
        known = [topic for topic in self._topics if master.rig.services.topics.select(topic) is not None]
        for number in range(LATER if known else 0):  # they get the offsets and positions of what was lost
            _put(master, rng.choice(known), rng.randrange(QUEUES), f"UNIQ_KEY\x01later{number}", rng.choice(BODIES))
        offsets = _offsets(master, self._topics)
        if rng.random() < 0.5:
            in_thread(trio.run, master.rig.services.schedule.file.save)
        master.close()
        master = Broker.open(root, is_slave=False)
        assert _offsets(master, self._topics) == offsets, "offsets that were lowered have come back"
        _check_master(master, self._topics)
        master.close()


def _put(broker: Broker, topic: str, queue_id: int, properties: str, size: int) -> None:
    message = MessageToPut(topic, queue_id, b"." * size, properties.encode(), wait_store=False)
    result = broker.fast_path.put_now(message)
    assert result.code == 0, f"a message for {topic} is answered {result}"


async def _stop_in_order(broker: Broker) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.rig.broker.run)
        await broker.rig.broker.stop(unregister=False)


def _offsets(broker: Broker, topics: list[str]) -> dict[tuple[str, int], int]:
    committed = broker.rig.services.offsets
    return {(topic, at): offset for topic in topics for at, offset in committed.query_all(GROUP, topic).items()}


def _check_tables(broker: Broker, topics: list[str]) -> None:
    """No table presumes more than the log has."""
    records, services = broker.records(), broker.rig.services
    for (topic, queue_id), offset in _offsets(broker, topics).items():
        queue = broker.control.queue(topic, queue_id)
        end_of = 0 if queue is None else int(queue.next_offset)
        assert offset <= end_of, f"the group goes on at {offset} in queue {queue_id} of {topic}, which ends at {end_of}"
    copies = {(record.topic, _property(record, "UNIQ_KEY")) for record in records}
    progress = services.schedule.document()["offsetTable"]
    for record in (record for record in records if record.topic == names.SCHEDULE_TOPIC):
        if record.queue_offset < progress.get(record.queue_id + 1, 0):
            there = (_property(record, "REAL_TOPIC"), _property(record, "UNIQ_KEY")) in copies
            assert there, f"level {record.queue_id + 1} goes on at {progress}, and {record.queue_offset} has no copy"
    ended = {int(record.body) for record in records if record.topic == names.TRANS_OP_HALF_TOPIC}
    copied = (record for record in records if record.sys_flag & TRANSACTION_MASK == COMMIT)
    committed = {record.prepared_transaction_offset for record in copied}  # the op message may be the next record
    known_to_java = services.offsets.query(names.TRANS_GROUP, names.TRANS_HALF_TOPIC, 0)
    for record in (record for record in records if record.topic == names.TRANS_HALF_TOPIC):
        is_open = broker.states.is_open(record.queue_offset)
        has_ended = record.queue_offset in ended or record.phy_offset in committed
        assert is_open is not has_ended, f"half message {record.queue_offset}: open is {is_open}"
        assert not is_open or record.queue_offset >= known_to_java, f"a Java broker passes {record.queue_offset}"
    known_below = broker.known_below()
    assert known_below <= broker.end, f"the table of topics knows the log below {known_below}, it ends at {broker.end}"


def _check_master(broker: Broker, topics: list[str]) -> None:
    """Of a broker that is the master now: nothing that its log has is lost. Delivers and ends what waits."""
    _check_tables(broker, topics)
    known, records = broker.rig.services.topics, broker.records()
    for record in records:
        for topic in {record.topic, _property(record, "REAL_TOPIC") or record.topic} - {names.TRANS_OP_HALF_TOPIC}:
            assert known.select(topic) is not None, f"topic {topic} of the message at {record.phy_offset} is unknown"
    trio.run(_deliver_all, broker, clock=trio.testing.MockClock(autojump_threshold=0))
    halves = [record for record in records if record.topic == names.TRANS_HALF_TOPIC]
    for record in [record for record in halves if broker.states.is_open(record.queue_offset)]:
        answer = end(broker.path, (record.queue_offset, record.phy_offset), COMMIT)
        assert answer == (0, ""), f"the end of {record.queue_offset} is answered {answer}"
    copies = {(record.topic, _property(record, "UNIQ_KEY")) for record in broker.records()}
    for record in (record for record in records if record.topic == names.SCHEDULE_TOPIC):
        place = _property(record, "REAL_TOPIC"), _property(record, "UNIQ_KEY")
        assert place in copies, f"the delayed message at {record.phy_offset} is lost"


async def _deliver_all(broker: Broker) -> None:
    schedule, store, broker.fast_path.room = broker.rig.services.schedule, broker.store, sys.maxsize

    def is_behind(level: int) -> bool:
        queue = names.SCHEDULE_TOPIC, level - 1
        progress = schedule.document()["offsetTable"].get(level, 0)
        return max(progress, store.min_offset(*queue)) < store.max_offset(*queue)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(schedule.run)
        with trio.fail_after(CATCH_UP_S):
            while any(is_behind(level) for level in LEVELS):  # noqa: ASYNC110 - nothing tells its end
                await trio.sleep(1)
        nursery.cancel_scope.cancel()


def _property(record: StoredRecord, name: str) -> str | None:
    for entry in record.properties.decode().split("\x02"):
        if entry.startswith(f"{name}\x01"):
            return entry.split("\x01", 1)[1]
    return None


if __name__ == "__main__":
    sys.exit(run_lives(Life))
