"""The sleeping protocol of csrc/ipc/worker.h and ring.h, every interleaving of it, on a machine with store buffers.

Invariant: nobody sleeps for ever. Whatever the order in which the steps of producer and consumer and the draining of
their store buffers (x86's total store order) happen, all records arrive.

The programs below follow has_room, publish, rp_ring_wake and the sleep of the producer, and rp_ring_read, move_head,
found_empty and the sleep of the consumer, one shared access per step. Each fence can be taken out; that every one of
them is then missed shows that the search can fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs
import pytest

TAIL, HEAD, ASLEEP, WAITING = range(4)
PRODUCER, CONSUMER = 0, 1
RECORDS = 4
CAPACITY = 2
FREE_ENOUGH = CAPACITY // 2  # a waiting producer is rung when no more than this is in use

Buffer = tuple[tuple[int, int], ...]  # stores that memory has not seen yet, oldest first


@attrs.frozen
class Process:
    at: str
    tail: int = 0  # the producer's own, or as the consumer has seen it
    head: int = 0  # the consumer's own, or as the producer has seen it
    woken: int = 0  # producer: the consumer knows of everything below
    fenced: int = 0  # consumer: a waiting producer was looked for at this head
    buffer: Buffer = ()


@attrs.frozen
class State:
    producer: Process
    consumer: Process
    memory: tuple[int, int, int, int] = (0, 0, 0, 0)
    bells: tuple[bool, bool] = (False, False)  # doorbells of producer, consumer


@attrs.define
class Step:
    """What one process may do with shared memory in one step. None from a step: it cannot be taken now."""

    state: State
    who: int
    without: frozenset[str]  # fences that are taken out
    process: Process = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.process = self.state.producer if self.who == PRODUCER else self.state.consumer

    def load(self, place: int) -> int:
        for where, value in reversed(self.process.buffer):
            if where == place:
                return value
        return self.state.memory[place]

    def store(self, place: int, value: int) -> None:
        self.process = attrs.evolve(self.process, buffer=(*self.process.buffer, (place, value)))

    def exchange(self, place: int, value: int) -> int | None:
        """A locked instruction: waits for the buffer to drain."""
        if self.process.buffer:
            return None
        old = self.state.memory[place]
        self.state = attrs.evolve(self.state, memory=put(self.state.memory, place, value))
        return old

    def fence(self, name: str) -> bool:
        """False: not yet, the buffer must drain."""
        return name in self.without or not self.process.buffer

    def ring(self, whom: int) -> None:
        self.state = attrs.evolve(self.state, bells=put(self.state.bells, whom, True))

    def answer_bell(self) -> bool:
        if not self.state.bells[self.who]:
            return False
        self.state = attrs.evolve(self.state, bells=put(self.state.bells, self.who, False))
        return True

    def go(self, at: str, **changed: int) -> State:
        process = attrs.evolve(self.process, at=at, **changed)
        name = "producer" if self.who == PRODUCER else "consumer"
        return attrs.evolve(self.state, **{name: process})


def put(values: tuple, at: int, value: object) -> tuple:
    return (*values[:at], value, *values[at + 1 :])


def produce(step: Step) -> list[State]:
    me = step.process
    used = me.tail - me.head
    if me.at == "write":
        if me.tail == RECORDS:
            return [step.go("last wake")]
        return [step.go("publish" if used < CAPACITY else "look at head")]
    if me.at == "look at head":
        head = step.load(HEAD)
        return [step.go("publish" if me.tail - head < CAPACITY else "wait", head=head)]
    if me.at == "wait":
        step.store(WAITING, 1)
        return [step.go("fence before second look")]
    if me.at == "fence before second look":
        return [step.go("second look")] if step.fence("producer waits") else []
    if me.at == "second look":
        head = step.load(HEAD)
        return [step.go("unwait" if me.tail - head < CAPACITY else "wake and sleep", head=head)]
    if me.at == "unwait":
        step.store(WAITING, 0)
        return [step.go("publish")]
    if me.at == "publish":
        step.store(TAIL, me.tail + 1)
        return [step.go("write", tail=me.tail + 1), step.go("wake", tail=me.tail + 1)]  # a batch may go on
    if me.at in ("wake", "wake and sleep", "last wake"):
        after = {"wake": "write", "wake and sleep": "sleep", "last wake": "done"}[me.at]
        if me.woken == me.tail:
            return [step.go(after)]
        return [step.go(f"asleep? then {after}", woken=me.tail)] if step.fence("producer wakes") else []
    if me.at.startswith("asleep? then "):
        after = me.at.removeprefix("asleep? then ")
        return [step.go(f"ring then {after}" if step.load(ASLEEP) else after)]
    if me.at.startswith("ring then "):
        was = step.exchange(ASLEEP, 0)
        if was:
            step.ring(CONSUMER)
        return [] if was is None else [step.go(me.at.removeprefix("ring then "))]
    if me.at == "sleep":
        return [step.go("write")] if step.answer_bell() else []
    return []


def consume(step: Step) -> list[State]:
    me = step.process
    if me.at == "read":
        if me.head == RECORDS:
            return [step.go("done")]
        return [step.go("release" if me.head < me.tail else "look at tail")]
    if me.at == "look at tail":
        tail = step.load(TAIL)
        if me.head < tail:
            return [step.go("release", tail=tail)]
        return [step.go("prepare sleep" if me.fenced == me.head else "fence at empty", tail=tail)]
    if me.at == "release":
        step.store(HEAD, me.head + 1)
        return [step.go("waiting? then read", head=me.head + 1)]
    if me.at == "fence at empty":
        return [step.go("waiting? then prepare sleep", fenced=me.head)] if step.fence("consumer finds empty") else []
    if me.at.startswith("waiting? then "):
        after = me.at.removeprefix("waiting? then ")
        return [step.go(f"free? then {after}" if step.load(WAITING) else after)]
    if me.at.startswith("free? then "):
        after = me.at.removeprefix("free? then ")
        return [step.go(f"ring then {after}" if step.load(TAIL) - me.head <= FREE_ENOUGH else after)]
    if me.at.startswith("ring then "):
        was = step.exchange(WAITING, 0)
        if was:
            step.ring(PRODUCER)
        return [] if was is None else [step.go(me.at.removeprefix("ring then "))]
    if me.at == "prepare sleep":
        step.store(ASLEEP, 1)
        return [step.go("fence before last look")]
    if me.at == "fence before last look":
        return [step.go("last look")] if step.fence("consumer sleeps") else []
    if me.at == "last look":
        return [step.go("awake" if me.head < step.load(TAIL) else "sleep")]
    if me.at == "sleep":
        return [step.go("awake")] if step.answer_bell() else []
    if me.at == "awake":
        step.store(ASLEEP, 0)
        return [step.go("drain bell")]
    if me.at == "drain bell":
        step.answer_bell()
        return [step.go("read")]
    return []


def drain_oldest(state: State, who: int) -> State:
    """Memory sees the oldest store of a buffer."""
    name = "producer" if who == PRODUCER else "consumer"
    process: Process = getattr(state, name)
    (place, value), *rest = process.buffer
    return attrs.evolve(
        state, memory=put(state.memory, place, value), **{name: attrs.evolve(process, buffer=tuple(rest))}
    )


def successors(state: State, without: frozenset[str]) -> Iterator[State]:
    programs: list[tuple[int, Process, Callable[[Step], list[State]]]] = [
        (PRODUCER, state.producer, produce),
        (CONSUMER, state.consumer, consume),
    ]
    for who, process, program in programs:
        yield from program(Step(state, who, without))
        if process.buffer:
            yield drain_oldest(state, who)


def ends_of(without: frozenset[str], reached: set[State]) -> Iterator[State]:
    """Yield the states in which nothing can happen any more; all states that were seen are added to `reached`."""
    start = State(Process("write"), Process("read"))
    reached.add(start)
    frontier = [start]
    while frontier:
        state = frontier.pop()
        following = list(successors(state, without))
        if not following:
            yield state
        fresh = [one for one in following if one not in reached]
        reached.update(fresh)
        frontier += fresh


def is_finished(state: State) -> bool:
    return state.producer.at == state.consumer.at == "done"


def test_nobody_sleeps_for_ever() -> None:
    reached: set[State] = set()
    ends = list(ends_of(frozenset(), reached))
    assert len(reached) > 1000
    assert ends
    assert all(is_finished(state) for state in ends)


@pytest.mark.parametrize("fence", ["producer waits", "producer wakes", "consumer sleeps", "consumer finds empty"])
def test_every_fence_is_needed(fence: str) -> None:
    """The search without it ends at the first state in which somebody sleeps for ever.
    Fault: A wake-up of the store worker could be lost for want of a fence."""
    assert any(not is_finished(state) for state in ends_of(frozenset({fence}), set()))
