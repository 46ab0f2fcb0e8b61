"""Invariant: whatever worker is killed at whatever moment, under load and in every shape, what was acknowledged stays
where it was acknowledged, once, in order and without a hole; the other connections go on being answered; suspended
pulls are answered or cut off; and the operator reads one line about each restart."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import time

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the broker needs the compiled core")

from rocketpy.native.core import lib
from tests.support.broker import running_broker
from tests.support.history import PULL_NOT_FOUND, PULL_RETRY, Connection, Load, check, pull_request, send_request
from tests.support.kills import wait_until_gone
from tests.support.waiting import wait_until

SEED = int(os.environ.get("ROCKETPY_FAULT_SEED", random.SystemRandom().randrange(1 << 32)))
KILLS = 34  # per shape
SHAPES = {
    "one and one": {"selectorWorkers": "1", "codecWorkers": "1"},
    "three and three": {"selectorWorkers": "3", "codecWorkers": "3"},
    "inline codec": {"codecWorkers": "0"},
    "three of each pool": {"codecWorkers": "1", "pullWorkers": "3", "queryWorkers": "3"},
}
TOPICS = [("alpha", 4), ("beta", 4), ("gamma", 4)]
RESTARTED = re.compile(r"supervisor: worker (\S+) was killed by SIGKILL; restarting ", re.MULTILINE)
SUSPENDED_PULLS = 3
HOLD_MS = 600_000  # far beyond the test: whatever ends a suspended pull, it is not its time


class SuspendedPulls:
    """Pulls of an empty queue, one per connection: each is to end when the worker that holds it does."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connections: list[Connection] = []
        self.ended = 0

    def hold(self) -> None:
        while len(self._connections) < SUSPENDED_PULLS:
            connection = Connection(self._port, timeout_s=30.0)
            reply = connection.ask(send_request("quiet", 0, [b"0 quiet 0 x"], 1))
            assert reply.code in (0, 1, 2), reply
            connection.ask(pull_request("quiet", 3, 0))  # its group is there now
            connection.send(pull_request("quiet", 3, 0, hold_ms=HOLD_MS), pull_request("quiet", 2, 0))
            reply = connection.receive()  # to the second one: so the first is held
            assert reply.code == PULL_NOT_FOUND, reply
            self._connections.append(connection)

    def expect_end(self) -> None:
        """Each of them is answered, or its connection closed; then they are held anew."""
        for connection in self._connections:
            try:
                reply = connection.receive()
                assert reply.code == PULL_RETRY, reply
            except ConnectionError:
                pass
            except TimeoutError:
                raise AssertionError("a suspended pull was forgotten: no answer in 30 s") from None
            finally:
                connection.close()
            self.ended += 1
        self._connections.clear()

    def expect_none(self) -> None:
        """The death of another pull worker has ended none of them: pulls that all of these processes answer now are
        the next that is heard of."""
        for connection in self._connections:
            for queue_id in range(3):
                request = pull_request("quiet", queue_id, 0)
                reply = connection.ask(request)
                assert reply.opaque == request.opaque, "a suspended pull ended with a worker that did not hold it"
        self.drop()

    def drop(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections.clear()


def owner_of(topic: str, queue_id: int, pulls: list[str]) -> str:
    """The pull worker that has the queue."""
    return pulls[lib.rp_queue_owner(topic.encode(), len(topic.encode()), queue_id, len(pulls))]


@pytest.mark.parametrize("shape", SHAPES)
def test_no_death_of_a_worker_loses_repeats_or_reorders(shape: str) -> None:
    """Fault: Messages of a new topic were out of reach if the manager died before saving topics.json.
    Holds: cluster, at least once."""
    print(f"ROCKETPY_FAULT_SEED={SEED}")
    choose = random.Random(f"{SEED}/{shape}")
    with running_broker(SHAPES[shape]) as broker:
        names = sorted(broker.workers())
        victims = [names[i % len(names)] for i in range(KILLS)]
        choose.shuffle(victims)
        held = SuspendedPulls(broker.port)
        owner = owner_of("quiet", 3, [name for name in names if name.startswith("pull")])
        with Load(broker.port, SEED, TOPICS, new_topics=True, large_bytes=400_000) as load:
            load.wait_for_answers(10)
            for victim in victims:
                is_pull = victim.startswith("pull")
                if is_pull:
                    held.hold()
                load.wait_for_answers(choose.randrange(1, 20))
                time.sleep(choose.random() * 0.02)
                pid = broker.kill_worker(victim)
                wait_until_gone(broker, victim, pid)
                if victim == owner:
                    held.expect_end()
                elif is_pull:
                    held.expect_none()
            load.wait_for_answers(20)
        held.drop()
        verdict = check(broker.port, [load])
        print(f"{shape}: {len(victims)} kills, {load.lives} lives, {verdict}, {held.ended} suspended pulls ended")
        assert verdict.acknowledged > 100 and held.ended >= SUSPENDED_PULLS
        reported = sorted(name.replace("-", " ") for name in RESTARTED.findall(broker.text()))
        assert reported == sorted(victims), broker.text()[-4000:]
        assert broker.stop() == 0, broker.text()[-4000:]


def test_deaths_of_a_masters_replicator_never_stop_it() -> None:
    """Fault: A replicator that failed at each start, after its files were replaced, stopped the broker at the eleventh
    time."""
    with running_broker() as broker:
        with socket.create_connection(("127.0.0.1", broker.port + 1)):
            wait_until(lambda: "replicator" in broker.workers())
        for _ in range(11):
            wait_until_gone(broker, "replicator", broker.kill_worker("replicator"))
        connection = Connection(broker.port)
        assert connection.ask(send_request("alpha", 0, [b"0 alpha 0 x"], 1)).code == 0
        connection.close()
        assert broker.stop() == 0, broker.text()[-4000:]


def test_workers_that_stand_still_are_replaced() -> None:
    print(f"ROCKETPY_FAULT_SEED={SEED}")
    with running_broker({"workerHeartbeatTimeoutMillis": "8000", "selectorWorkers": "2"}) as broker:
        names = sorted(broker.workers())
        with Load(broker.port, SEED, TOPICS) as load:
            load.wait_for_answers(10)
            for victims in (names[::2], names[1::2]):
                pids = {name: broker.workers()[name] for name in victims}
                for pid in pids.values():
                    os.kill(pid, signal.SIGSTOP)
                for name, pid in pids.items():
                    wait_until_gone(broker, name, pid)
                load.wait_for_answers(10)
        print(check(broker.port, [load]))
        reported = re.findall(
            r"supervisor: worker (\S+) has not sent a heartbeat for [\d.]+ s: killing it$", broker.text(), re.MULTILINE
        )
        assert sorted(name.replace("-", " ") for name in reported) == names, broker.text()[-4000:]
        assert broker.stop() == 0, broker.text()[-4000:]


def test_a_frozen_broker_wakes_with_the_workers_it_had() -> None:
    """All of it stands still for longer than a worker may (a paused container, Ctrl-Z): nobody is to blame.
    Fault: A process group that had been frozen was killed by its own supervisor when it woke."""
    print(f"ROCKETPY_FAULT_SEED={SEED}")
    with running_broker({"workerHeartbeatTimeoutMillis": "8000"}) as broker:
        before = broker.workers()
        assert broker.process is not None
        group = broker.process.pid
        with Load(broker.port, SEED, TOPICS) as load:
            load.wait_for_answers(10)
            os.killpg(group, signal.SIGSTOP)
            time.sleep(10)
            os.kill(group, signal.SIGCONT)  # the supervisor first: it sees the others silent for 10 s
            time.sleep(0.1)
            os.killpg(group, signal.SIGCONT)
            load.wait_for_answers(20)
        assert broker.workers() == before, broker.text()[-4000:]
        assert "paused for" in broker.text()
        assert check(broker.port, [load]).acknowledged > 10
        assert broker.stop() == 0, broker.text()[-4000:]
