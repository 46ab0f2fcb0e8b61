"""All orders of events of two members, from a given beginning and to a given depth.

`python -m tests.support.failover.orders --depth 5` goes deeper than the tests do.

A choice is one thing that happens next: a member's turn (a second later), the arrival or the loss of anything that is
under way, a fresh read of etcd, the end of a lease, a crash with or without the disk. A world is copied before each
choice, and one that was reached before is not gone into again.
"""

from __future__ import annotations

import argparse
import pickle
from collections.abc import Callable, Iterator

import attrs

from rocketpy.failover.rules.requests import Kind, Outcome, RevokeLease, Transaction, View
from rocketpy.failover.rules.settings import Settings
from rocketpy.failover.rules.states import Change, State

from .checker import Checker
from .etcd_model import EtcdModel, Registration
from .node import Disk, Fetch, Node, Reply, Serials
from .world import config_of

TURN_S = 1.0
FOR_EVER_S = 1e9
LEASE_S = 6.0


@attrs.frozen
class Answer:
    """Of etcd, on its way back."""

    asked: Transaction
    outcome: Outcome
    view: View | None


@attrs.frozen
class Item:
    """Something under way to a node (or, a request, from it), for the process of that life."""

    node: str
    life: int
    what: Fetch | Reply | Transaction | RevokeLease | Answer


@attrs.define(eq=False)
class SmallWorld(Serials):
    """Two members; nothing happens by itself."""

    now: float = 0.0
    checker: Checker = attrs.field(factory=lambda: Checker(True))
    etcd: EtcdModel = attrs.field(factory=EtcdModel)
    nodes: dict[str, Node] = attrs.field(factory=dict)
    items: list[Item] = attrs.field(factory=list)

    def tell(self, name: str, change: Change) -> None:
        """Nobody listens."""

    def send(self, source: str, target: str, message: Fetch | Reply) -> None:
        self.items.append(Item(target, self.nodes[target].life, message))

    def ask(self, node: Node, request: Transaction | RevokeLease) -> None:
        self.items.append(Item(node.name, node.life, request))

    def acknowledged(self, node: Node) -> None:
        node.step()

    # --- what may happen ----------------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """A new process with a new lease, registered."""
        node = self.nodes[name]
        node.start()
        assert node.member is not None
        lease = self.etcd.grant(FOR_EVER_S)
        node.lease_granted(lease, self.now, LEASE_S)
        self.etcd.put(f"members/{name}", Registration(name, node.record()), lease)

    def blind_turn(self, name: str) -> None:
        """A turn with what the member knows; its clock moves on within it, so that delays by rank end."""
        node = self.nodes[name]
        for _ in range(2):
            self.now += TURN_S / 2
            node.step()
        node.send()
        node.follow()

    def turn(self, name: str) -> None:
        """A turn after a read."""
        self._read(name)
        self.blind_turn(name)

    def _read(self, name: str) -> None:
        member = self.nodes[name].member
        assert member is not None
        if member.lease is not None and not self.etcd.renew(member.lease.number, FOR_EVER_S):
            member.lease_gone(member.lease.number)
        if member.lease is None:
            self.nodes[name].lease_granted(self.etcd.grant(FOR_EVER_S), self.now, LEASE_S)
        self.etcd.put(f"members/{name}", Registration(name, self.nodes[name].record()), member.lease.number)  # type: ignore[union-attr]  # granted
        member.learn(self.etcd.view())

    def arrive(self, at: int) -> None:
        item = self.items.pop(at)
        node, what = self.nodes[item.node], item.what
        if isinstance(what, Transaction):
            self.items.append(Item(item.node, item.life, self._decided(node, what)))
        elif isinstance(what, RevokeLease):
            self.etcd.revoke(what.lease)
            if node.member is not None and node.life == item.life:
                node.member.lease_gone(what.lease)
        elif node.life == item.life:
            self._deliver(node, what)

    def _decided(self, node: Node, asked: Transaction) -> Answer:
        before = self.etcd.view().state
        outcome = self.etcd.decide(asked)
        if outcome is Outcome.SUCCEEDED and asked.kind is Kind.ELECT and before is not None:
            self.checker.unclean += not before.names(node.name, node.disk.incarnation)
        return Answer(asked, outcome, self.etcd.view())

    def _deliver(self, node: Node, what: Fetch | Reply | Answer) -> None:
        assert node.member is not None
        if isinstance(what, Answer):
            node.member.answered(what.asked.number, what.outcome)
            if what.view is not None:
                node.member.learn(what.view)
            node.step()
        else:
            node.receive(what)

    def give_up(self, at: int) -> None:
        """A member waits no longer; its request is still under way, or its answer is lost."""
        item = self.items[at]
        asked = item.what.asked if isinstance(item.what, Answer) else item.what
        assert isinstance(asked, Transaction)
        if isinstance(item.what, Answer):
            del self.items[at]
        if self.nodes[item.node].life == item.life:
            self._deliver(self.nodes[item.node], Answer(asked, Outcome.UNKNOWN, None))

    def lose(self, at: int) -> None:
        del self.items[at]

    def end_lease(self, lease: int) -> None:
        self.etcd.revoke(lease)

    def kill(self, name: str) -> None:
        self.nodes[name].stop()
        self.start(name)

    def lose_disk(self, name: str) -> None:
        self.nodes[name].lose_disk()
        self.start(name)

    def choices(self) -> Iterator[tuple[str, tuple[object, ...]]]:
        """Names of methods above, with their arguments."""
        master = self.etcd.view().master
        if master is not None:
            yield "end_lease", (master.lease,)
        for name in self.nodes:
            yield "turn", (name,)
            yield "blind_turn", (name,)
            yield "kill", (name,)
        whole = self.etcd.view().state
        held = [name for name, node in self.nodes.items() if whole and whole.names(name, node.disk.incarnation)]
        for name in self.nodes:
            if held != [name]:
                yield "lose_disk", (name,)
        for at, item in enumerate(self.items[:4]):
            yield "arrive", (at,)
            if isinstance(item.what, (Transaction, Answer)):
                yield "give_up", (at,)
            elif isinstance(item.what, (Fetch, Reply)):
                yield "lose", (at,)


def joining() -> SmallWorld:
    """Two members with empty stores, registered."""
    world = SmallWorld()
    for name in ("a", "b"):
        settings = Settings(member=name, config=config_of(["a", "b"], "sync"), lease_s=LEASE_S, keep_up_s=1.5)
        world.nodes[name] = Node(name, settings, world, Disk(world.incarnation()))
        world.start(name)
    return world


def in_sync() -> SmallWorld:
    """`a` is master, `b` in sync and has a message that it acknowledges just now."""
    world = joining()
    for _ in range(60):
        for name in world.nodes:
            world.turn(name)
        while world.items:
            world.arrive(0)
        state = world.etcd.view().state
        if state and len(state.in_sync) == 2 and world.nodes["b"].member.state is State.IN_SYNC:  # type: ignore[union-attr]  # it runs
            break
    world.turn("a")
    world.turn("b")
    while len(world.nodes["b"].disk.log) < len(world.nodes["a"].disk.log):
        world.arrive(0)
    return world


def lease_ended() -> SmallWorld:
    """The same, when etcd has ended the lease of `a`, and `b` asks to be elected."""
    world = in_sync()
    master = world.etcd.view().master
    assert master is not None
    world.end_lease(master.lease)
    world.turn("b")
    return world


def elected() -> SmallWorld:
    """The same, when etcd has written that `b` is master, and `b` does not know yet."""
    world = lease_ended()
    world.arrive(next(at for at, item in enumerate(world.items) if isinstance(item.what, Transaction)))
    return world


BEGINNINGS: dict[str, Callable[[], SmallWorld]] = {
    "joining": joining,
    "in sync": in_sync,
    "lease ended": lease_ended,
    "elected": elected,
}


@attrs.define
class Explored:
    """How many different worlds were reached; in how many a member was promoted, or a message acknowledged."""

    states: int = 0
    promotions: int = 0
    acknowledgements: int = 0


def explore(beginning: str, depth: int) -> Explored:
    """Go through all orders. Raises: Violation, with the choices that led to it in a note."""
    explored = Explored()
    reached: set[bytes] = set()
    world = BEGINNINGS[beginning]()
    begun = world.checker
    edge: list[tuple[bytes, tuple[object, ...]]] = [(pickle.dumps(world), ())]
    for _ in range(depth):
        further: list[tuple[bytes, tuple[object, ...]]] = []
        for image, path in edge:
            for name, arguments in pickle.loads(image).choices():
                after: SmallWorld = pickle.loads(image)
                try:
                    getattr(after, name)(*arguments)
                except AssertionError as exc:
                    exc.add_note(f"after {[*path, (name, *arguments)]}")
                    raise
                key = pickle.dumps(after)
                if key in reached:
                    continue
                reached.add(key)
                further.append((key, (*path, (name, *arguments))))
                explored.promotions += after.checker.promotions > begun.promotions
                explored.acknowledgements += after.checker.acknowledgements > begun.acknowledgements
        edge = further
    explored.states = len(reached)
    return explored


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depth", type=int, default=4)
    options = parser.parse_args()
    for beginning in BEGINNINGS:
        print(beginning, explore(beginning, options.depth), flush=True)
