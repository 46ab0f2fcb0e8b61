"""Invariant: a topic may be deleted while producers go on and create it again, whatever worker is killed meanwhile.
What is acknowledged after the deletion is there at its offset, before and after a restart; no offset is given twice."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterable

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the broker needs the compiled core")

from rocketpy.codes import RequestCode
from rocketpy.remoting.command import RemotingCommand
from tests.support.broker import RunningBroker, running_broker
from tests.support.history import MAX_OFFSET, Ack, Load, Reader

SEED = int(os.environ.get("ROCKETPY_FAULT_SEED", random.SystemRandom().randrange(1 << 32)))
TOPIC, QUEUES = "again", 4
WINDOW = 16
CYCLES = 12


def delete(port: int) -> None:
    """Asked until there is an answer: the manager may be killed under the question."""
    reader = Reader(port)
    fields = {"topic": TOPIC}
    reply = reader.ask(RemotingCommand.request(RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields=fields))
    reader.close()
    assert reply.code == 0, reply


def wait_dispatched(reader: Reader, topic: str, places: Iterable[tuple[int, int]]) -> None:
    """Until the queues reach as far as what was acknowledged: a store worker that was killed has to start again."""
    for queue_id, offset in dict(sorted(places)).items():
        deadline = time.monotonic() + 60
        while (end := reader.offset(MAX_OFFSET, topic, queue_id)) <= offset:
            assert time.monotonic() < deadline, f"queue {queue_id} ends at {end}, but {offset} is acknowledged"
            time.sleep(0.02)


def expect(port: int, acks: list[Ack]) -> None:
    """Assert that every acknowledged message is read at its acknowledged place."""
    wanted = {(ack.queue_id, ack.queue_offset): (ack.life, ack.number) for ack in acks}
    reader = Reader(port)
    wait_dispatched(reader, TOPIC, wanted)
    ends = [reader.offset(MAX_OFFSET, TOPIC, queue_id) for queue_id in range(QUEUES)]
    found = {}
    for queue_id, end in enumerate(ends):
        for record in reader.records(TOPIC, queue_id):
            if record.queue_offset >= end:
                break  # the end as it was: a producer that runs appends faster than this process reads
            _, life, number, _ = bytes(record.body).split(b" ", 3)
            assert (queue_id, record.queue_offset) not in found, "an offset twice"
            found[queue_id, record.queue_offset] = (life.decode(), int(number))
    reader.close()
    lost = {place: what for place, what in wanted.items() if found.get(place) != what}
    assert not lost, f"seed {SEED}: {len(lost)} of {len(wanted)} are lost, the first at {min(lost)}"


def kill_soon(broker: RunningBroker, victim: str, after_s: float) -> threading.Thread:
    def kill() -> None:
        time.sleep(after_s)
        broker.kill_worker(victim)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


@pytest.mark.parametrize("victims", [(), ("manager", "send", "store")], ids=["in peace", "under kills"])
def test_what_is_acknowledged_after_a_deletion_stays(victims: tuple[str, ...]) -> None:
    """Fault: A manager that died during a deletion left the topic with the send worker, and sends became unreadable.
    Fault: A topic deleted while producers sent lost the units of messages acknowledged after the deletion."""
    print(f"ROCKETPY_FAULT_SEED={SEED}")
    choose = random.Random(f"{SEED}/{victims}")
    with running_broker({}) as broker:
        with Load(broker.port, SEED, [(TOPIC, QUEUES)], window=WINDOW) as load:
            load.wait_for_answers(100)
            for cycle in range(CYCLES):
                killers = [kill_soon(broker, victims[cycle % len(victims)], choose.random() * 0.05)] if victims else []
                delete(broker.port)
                for killer in killers:
                    killer.join()
                load.wait_for_answers(2 * WINDOW)  # what was on its way has been answered
                since = len(load.acks)
                load.wait_for_answers(50)
                expect(broker.port, load.acks[since:])
        places = Counter((ack.queue_id, ack.queue_offset) for ack in load.acks)
        twice = [place for place, count in places.items() if count > 1]
        assert not twice, f"seed {SEED}: offsets given twice: {twice[:10]}"
        expect(broker.port, load.acks[since:])
        for stop in (broker.kill_all, broker.stop):
            stop()
            broker.start()
            expect(broker.port, load.acks[since:])
        assert broker.stop() == 0, broker.text()[-4000:]
