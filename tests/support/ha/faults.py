"""Faults of one member, and how each is healed."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Mapping

from .clocks import TurnedClock
from .group import Group

Heal = Callable[[], None]
Fault = Callable[[Group, str, random.Random], Heal]


def cut(group: Group, one: str, two: str, *, both: bool = True) -> Heal:
    """Cut two places from each other. Returns: what joins them again."""
    assert group.network is not None
    made, ways = group.network, [(one, two), *([(two, one)] if both else [])]
    group.history.happened(f"{one} is cut from {two}" + ("" if both else ", one way"))
    for source, target in ways:
        made.cut(source, target)

    def join() -> None:
        group.history.happened(f"{one} is joined with {two}")
        for source, target in ways:
            made.join(source, target)

    return join


def kill(group: Group, name: str, choose: random.Random) -> Heal:
    """kill -9 of all of it, sometimes with its disk: then others must have everything."""
    without_disk = choose.random() < 0.3
    if without_disk:
        group.wait_in_sync()
    group.history.happened(f"kill -9 of all of {name}" + (", its disk is gone" if without_disk else ""))
    group.members[name].kill_all()
    if without_disk:
        group.wait_for(lambda: name not in group.state().in_sync, f"{name} to leave the set")  # type: ignore[union-attr]
        group.members[name].lose_store()
    return group.members[name].begin


def freeze(group: Group, name: str, choose: random.Random) -> Heal:
    group.history.happened(f"SIGSTOP of all of {name}")
    group.members[name].signal_all(signal.SIGSTOP)

    def go_on() -> None:
        group.history.happened(f"SIGCONT of {name}")
        group.members[name].signal_all(signal.SIGCONT)

    return go_on


def isolate(group: Group, name: str, choose: random.Random) -> Heal:
    """Cut it from some of the others, one way or both."""
    peers = [place for place in ("a", "b", "c", "etcd") if place != name]
    joins = [cut(group, name, peer, both=choose.random() < 0.7) for peer in choose.sample(peers, choose.randint(1, 3))]

    def join() -> None:
        for each in joins:
            each()

    return join


def end_a_lease(group: Group, name: str, choose: random.Random) -> Heal:
    """The member's own, or the one of the mastership if it is master: early, as a bug of etcd may end it."""
    lease = group.lease_of(name)
    group.history.happened(f"the lease of {name} is revoked")
    if lease:
        group.revoke(lease)
    return lambda: None


def turn_the_clock(clocks: Mapping[str, TurnedClock]) -> Fault:
    """Of one member, for as long as the fault lasts; a jump stays."""

    def turn(group: Group, name: str, choose: random.Random) -> Heal:
        rate, boot_s, wall_s = choose.choice((0.9, 1.1)), choose.choice((0.0, 60.0)), choose.uniform(-3600.0, 3600.0)
        group.history.happened(f"clocks of {name} run at {rate}, jump by {boot_s:.0f} s, on the wall by {wall_s:.0f} s")
        clocks[name].run_at(rate)
        clocks[name].step(boot_s=boot_s, wall_s=wall_s)
        return lambda: clocks[name].run_at(1.0)

    return turn


def kill_a_worker(group: Group, name: str, choose: random.Random) -> Heal:
    title = choose.choice(("send", "replicator", "store", "manager", "coordinator", "supervisor"))
    group.history.happened(f"kill -9 of {title} of {name}")
    try:
        group.members[name].signal_worker(title, signal.SIGKILL)
    except KeyError:  # it is just being started
        group.history.happened(f"there is no {title} of {name}")
    return lambda: None
