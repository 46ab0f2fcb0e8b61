"""`python -m bench.kill`: the cost of the death of one worker while the broker is loaded.

64 connections with one request in flight each send while one worker of rocketpy is killed (SIGKILL). Reported:
how long no connection at all got an answer, how long each of those waited that were not cut off, and, after reading
every queue from its beginning, whether each acknowledged message is there, once, at the offset that was acknowledged.

Fault: A worker restarted after a wait went unnoticed by the manager for up to a second.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence

import attrs
import click

from rocketpy.bench import proc
from rocketpy.bench.load import Ack, Load, Mode, Workload
from rocketpy.bench.own_broker import HOST

from .brokers import Broker, running
from .control import StoredMessage
from .scenarios import QUEUES

TOPIC = "bench_kill"


@attrs.frozen
class Verdict:
    worker: str
    kills: int
    acknowledged: int
    stored: int  # also what was stored and never acknowledged
    missing: int  # acknowledged, and not there
    moved: int  # acknowledged at another queue or offset than where it is
    repeated: int  # acknowledged, and there more than once
    holes: int  # queue offsets skipped or returned twice
    gap_max_ms: float  # all connections together
    kept_gap_max_ms: float  # the worst of the connections that were not cut off
    connections_cut: int
    errors: dict[str, int]

    @property
    def is_safe(self) -> bool:
        return not (self.missing or self.moved or self.repeated or self.holes)


def find_workers(broker: Broker, name: str) -> list[int]:
    """List the processes of the tree, but not its root, whose name or command line contains `name`."""
    workers = [pid for root in broker.roots for pid in proc.tree(root) if pid != root]
    return [pid for pid in workers if name in proc.command_name(pid)]


class Killer(threading.Thread):
    """Kills the worker of a name `kills` times, evenly spread over `seconds`."""

    def __init__(self, broker: Broker, name: str, kills: int, seconds: float) -> None:
        super().__init__(name="killer")
        self._broker = broker
        self._worker = name
        self._times = [seconds * (kill + 1) / (kills + 1) for kill in range(kills)]
        self.killed: list[int] = []

    def run(self) -> None:
        started = time.monotonic()
        for at_s in self._times:
            time.sleep(max(0.0, started + at_s - time.monotonic()))
            for pid in find_workers(self._broker, self._worker)[:1]:
                os.kill(pid, signal.SIGKILL)
                self.killed.append(pid)


def compare(acks: Sequence[Ack], stored: Iterable[StoredMessage], prefix: str) -> dict[str, int]:
    """Hold what was acknowledged against what can be read, message by message."""
    places: dict[str, list[tuple[int, int]]] = {}
    next_offset: Counter[int] = Counter()
    holes = count = 0
    for message in stored:
        holes += message.queue_offset != next_offset[message.queue_id]
        next_offset[message.queue_id] = message.queue_offset + 1
        places.setdefault(message.unique_key, []).append((message.queue_id, message.queue_offset))
        count += 1
    found = Counter(missing=0, moved=0, repeated=0, holes=holes, stored=count)
    for ack in acks:
        at = places.get(f"{prefix}{ack.key:016X}", [])
        found["missing"] += not at
        found["repeated"] += len(at) > 1
        found["moved"] += bool(at) and (ack.queue_id, ack.queue_offset) not in at
    return dict(found)


def kill_one(broker: Broker, worker: str, kills: int, seconds: float, workload: Workload) -> Verdict:
    """Load, kill, drain, and read everything back.

    Raises:
        click.UsageError: there is not exactly one such worker.
        BrokerFailed: the broker ended.
    """
    broker.create_topic(TOPIC, QUEUES)
    if len(find_workers(broker, worker)) != 1:
        names = sorted(proc.command_name(pid) for root in broker.roots for pid in proc.tree(root))
        raise click.UsageError(f"not one worker {worker!r} among {names}")
    with Load(workload, host=HOST, port=broker.port, topic=TOPIC, queues=QUEUES) as load:
        killer = Killer(broker, worker, kills, seconds)
        killer.start()
        load.run(seconds)
        killer.join()
        load.drain()
        result, acks, gaps = load.result(seconds, 0.0), load.acks(), load.connection_gaps_ms()
    broker.check_alive()
    with broker.control() as control:
        control.wait_for_offsets(TOPIC, QUEUES, len(acks))
        stored = [message for queue_id in range(QUEUES) for message in control.read_queue(TOPIC, queue_id)]
    return Verdict(
        worker=worker,
        kills=len(set(killer.killed)),
        acknowledged=len(acks),
        gap_max_ms=result.gap_max_ms,
        kept_gap_max_ms=max((round(gap_ms, 3) for gap_ms, lost in gaps if not lost), default=0.0),
        connections_cut=sum(1 for _, lost in gaps if lost),
        errors=result.errors,
        **compare(acks, stored, load.prefix),
    )


@click.command()
@click.option("--worker", multiple=True, required=True, help="Part of the worker's name, e.g. send; several: in turn.")
@click.option("--seconds", type=click.FloatRange(1), default=4.0, show_default=True)
@click.option(
    "--kills", type=click.IntRange(1), default=1, show_default=True, help="Number of kills, evenly spread over the run."
)
@click.option("--connections", type=click.IntRange(1), default=64, show_default=True)
@click.option(
    "--in-flight", type=click.IntRange(1), default=1, show_default=True, help="Requests in flight per connection."
)
@click.option("--body-size", type=click.IntRange(1), default=1024, show_default=True)
@click.option(
    "--gap-ms", type=float, default=1000.0, show_default=True, help="Longest time without a response that is tolerated."
)
def main(
    worker: tuple[str, ...], seconds: float, kills: int, connections: int, in_flight: int, body_size: int, gap_ms: float
) -> None:
    """Kill a worker of rocketpy under load; 0 if nothing was lost and service was back in time."""
    failed = False
    workload = Workload(Mode.SEND, connections, in_flight, body_size, reconnect=True, record_acks=True, timeout_s=3.0)
    for name in worker:
        with running("rocketpy") as broker:
            verdict = kill_one(broker, name, kills, seconds, workload)
        print(json.dumps(attrs.asdict(verdict) | {"safe": verdict.is_safe}))
        failed |= not verdict.is_safe or verdict.kills != kills or verdict.gap_max_ms > gap_ms
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
