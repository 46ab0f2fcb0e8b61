"""Runs a producer and a consumer of ours while servers are restarted, killed, switched and made slow, one at a time.

    make soak-client OPTIONS="--minutes 20 --backend trio"
    python -m tests.support.soak --minutes 5 --backend asyncio --seed 7

A fault every half a minute: 20 minutes hold as many as a bad day. Failovers need etcd, slow networks root and `ip`; the
table says which faults there were. The exit status is 0 if

1. every message that was acknowledged (SEND_OK) has been handled;
2. a message was handled twice, or stored twice, only if its first handling, or its send, was near a fault;
3. memory and open files of both programs are steady: their medians in the last quarter of the run are those of the
   second one, but for GROWTH_MAX_MIB and FILES_GROWTH_MAX.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import attrs
import click
from rich.console import Console
from rich.table import Table

from .target import Fault, faults_of, running_servers
from .watch import FILES_GROWTH_MAX, GROWTH_MAX_MIB, Watched

CALM_S = 15.0
NEAR_S = (6.0, 12.0)  # before and after a fault: a commit that was under way; reconnections, routes, timeouts of sends
LAST_S = 90.0  # for the consumer to get the rest
SHOW_S = 10.0
PAUSE_S = 0.01


@attrs.frozen
class Happened:
    """A fault, and when it was: on the monotonic clock."""

    name: str
    begin_s: float
    end_s: float

    def is_near(self, at_s: float) -> bool:
        return self.begin_s - NEAR_S[0] <= at_s <= self.end_s + NEAR_S[1]


@attrs.define(eq=False)
class Soak:
    producer: Watched
    consumer: Watched
    faults: list[Happened] = attrs.field(factory=list)
    begin_s: float = attrs.field(factory=time.monotonic)
    now: str = ""  # the fault that happens now

    @property
    def lost(self) -> list[int]:
        return sorted(self.producer.told["sent"].keys() - self.consumer.told["got"].keys())

    def again(self) -> tuple[list[int], list[int]]:
        """Messages that were handled more than once: (near a fault, far from each)."""
        near: list[int] = []
        far: list[int] = []
        for number, times in self.consumer.told["got"].items():
            if len(times) > 1:
                moments = [times[0][1]]
                if len({place for place, _ in times}) > 1:  # stored twice
                    moments = [at_s for told in self.producer.told.values() for _, at_s in told.get(number, ())]
                (near if self._is_near(moments) else far).append(number)
        return near, far

    def _is_near(self, moments: Iterable[float]) -> bool:
        return any(fault.is_near(at_s) for fault in self.faults for at_s in moments)

    def show(self, minutes: float) -> None:
        passed_s = time.monotonic() - self.begin_s
        sent, got = (len(each) for each in (self.producer.told["sent"], self.consumer.told["got"]))
        memory = f"{self.producer.rss_mib:5.1f} and {self.consumer.rss_mib:5.1f} MiB"
        print(f"{passed_s:5.0f} s of {60 * minutes:.0f}  {sent} sent  {got} handled  {memory}  {self.now}", flush=True)

    def show_until(self, over: threading.Event, minutes: float) -> None:
        while not over.wait(SHOW_S):
            self.show(minutes)

    def table(self) -> Table:
        near, far = self.again()
        table = Table(title="Soak of the client", title_justify="left")
        for title in ("", "producer", "consumer", "allowed"):
            table.add_column(title, justify="left" if not title else "right")
        both = (self.producer, self.consumer)
        sent, got = self.producer.told["sent"], self.consumer.told["got"]
        opened = self.producer.told["open"].keys() - sent.keys()
        rows = [
            ("messages", f"{len(sent)} acknowledged", f"{len(got)} handled"),
            ("without an answer", str(len(opened)), "", "any"),
            ("lost", "", str(len(self.lost)), "0"),
            ("handled again near a fault", "", str(len(near)), "any"),
            ("handled again otherwise", "", str(len(far)), "0"),
            ("growth, MiB", *(f"{one.growth_mib:+.2f}" for one in both), f"{GROWTH_MAX_MIB:+.2f}"),
            ("slope, KiB a minute", *(f"{one.slope_kib:+.0f}" for one in both)),
            ("resident, MiB", *(f"{one.rss_mib:.1f}" for one in both)),
            ("open files", *("{:.0f}, {:.0f}".format(*one.files) for one in both), f"+{FILES_GROWTH_MAX}"),
        ]
        for row in rows:
            table.add_row(*row)
        for name, count in sorted(Counter(fault.name for fault in self.faults).items()):
            table.add_row(f"fault: {name}", str(count))
        return table

    def is_good(self) -> bool:
        return not self.lost and not self.again()[1] and self.producer.is_steady() and self.consumer.is_steady()


def play(soak: Soak, servers: object, minutes: float, choose: random.Random) -> None:
    """Faults in rounds, each once in a round, in an order of its own."""
    until_s = soak.begin_s + 60 * minutes
    round_: list[Fault] = []
    while time.monotonic() < until_s:
        soak.now = ""
        time.sleep(min(CALM_S, max(0.0, until_s - time.monotonic())))
        if time.monotonic() >= until_s:
            return
        if not round_:
            round_ = faults_of(servers)  # type: ignore[arg-type]  # either kind
            choose.shuffle(round_)
        fault = round_.pop()
        soak.now, begin_s = fault.__name__, time.monotonic()
        fault(servers, choose)  # type: ignore[arg-type]
        servers.wait_in_sync()  # type: ignore[attr-defined]
        soak.faults.append(Happened(fault.__name__, begin_s, time.monotonic()))


def finish(soak: Soak) -> None:
    """End the producer, wait for the rest of its messages, end the consumer."""
    soak.producer.end()
    until_s = time.monotonic() + LAST_S
    while soak.lost and time.monotonic() < until_s:
        time.sleep(0.5)
    soak.consumer.end()


@click.command(help=__doc__.partition("\n")[0])
@click.option("--minutes", default=20.0, show_default=True)
@click.option("--backend", type=click.Choice(["asyncio", "trio"]), default="asyncio", show_default=True)
@click.option("--seed", type=int, help="of the order of faults and their lengths")
def main(minutes: float, backend: str, seed: int | None) -> None:
    seed = random.randrange(1 << 30) if seed is None else seed
    print(f"backend {backend}, seed {seed}: starting servers", flush=True)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rocketpy-soak-")))
        servers = stack.enter_context(running_servers())
        namesrv = next(iter(servers.members.values())).namesrv
        producer = Watched.start("producer", namesrv, backend, PAUSE_S, directory)
        stack.callback(producer.kill)
        producer.wait_for("sent")  # it makes the topic
        consumer = Watched.start("consumer", namesrv, backend, PAUSE_S, directory)
        stack.callback(consumer.kill)
        soak, over = Soak(producer, consumer), threading.Event()
        stack.callback(over.set)
        threading.Thread(target=soak.show_until, args=(over, minutes), daemon=True).start()
        play(soak, servers, minutes, random.Random(seed))
        finish(soak)
    Console().print(soak.table())
    for number in soak.lost[:5] + soak.again()[1][:5]:
        print(f"message {number}: {producer.told['sent'].get(number)}, handled {consumer.told['got'].get(number)}")
    sys.exit(0 if soak.is_good() else 1)


if __name__ == "__main__":
    main()
