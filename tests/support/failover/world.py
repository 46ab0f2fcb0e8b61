"""Time, messages and what becomes of them. One random generator decides everything, so a seed repeats a history."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

import attrs

from rocketpy.failover.rules.records import FORMAT, GroupConfig
from rocketpy.failover.rules.requests import Kind, Outcome, RevokeLease, Transaction, View
from rocketpy.failover.rules.settings import Settings
from rocketpy.failover.rules.states import Change

from .checker import Checker
from .etcd_model import EtcdModel, Registration
from .node import Disk, Fetch, Node, Reply, Serials

TURN_S = 0.2
READ_S = 1.0
KEEPALIVE_S = 0.6
ANSWER_S = 1.0  # after which an answer of etcd is given up
LEASE_S = 3.0
ETCD = "etcd"


@attrs.define(kw_only=True)
class Weather:
    """How bad network and etcd are, as probabilities."""

    lost: float = 0.0  # a message, a request or an answer
    slow: float = 0.0  # takes seconds: a request may be applied long after its sender has given up
    early: float = 0.0  # a lease that ends when it was just renewed


@attrs.define(eq=False)
class World(Serials):
    """A group of members and their etcd in simulated time, in seconds."""

    random: random.Random
    checker: Checker
    weather: Weather = attrs.field(factory=Weather)
    etcd: EtcdModel = attrs.field(factory=EtcdModel)
    nodes: dict[str, Node] = attrs.field(factory=dict)
    cut: set[tuple[str, str]] = attrs.field(factory=set)  # (from, to): nothing arrives
    now: float = 0.0
    talks: bool = False
    _queue: list[tuple[float, int, Callable[[], None]]] = attrs.field(factory=list)

    def add(self, name: str, config: GroupConfig, rate: float, ahead_s: float) -> None:
        settings = Settings(member=name, config=config, lease_s=LEASE_S, keep_up_s=1.5)
        node = Node(name, settings, self, Disk(self.incarnation()), rate, ahead_s)
        self.nodes[name] = node
        node.start()
        self.after(self.random.random() * TURN_S, lambda: self._turn(node, 0))

    def tell(self, name: str, change: Change) -> None:
        if self.talks:
            what = f"{change.before.name} -> {change.after.name} by {change.event.name}"
            print(f"{self.now:7.2f} {name} {what}, epoch {change.epoch}")

    # --- time ---------------------------------------------------------------------------------------------------------

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + delay_s, self.serial(), act))

    def run(self, for_s: float) -> None:
        until = self.now + for_s
        while self._queue[0][0] <= until:
            self.now, _, act = heapq.heappop(self._queue)
            self.etcd.expire(self.now)
            act()
        self.now = until

    def _turn(self, node: Node, turns: int) -> None:
        """One turn of a node's loop, five times a second; a paused process does nothing and misses nothing."""
        self.after(TURN_S, lambda: self._turn(node, turns + 1))
        if node.member is None or self.now < node.paused_until:
            return
        if turns % 3 == 0:
            self._keep_lease(node)
        if turns % 5 == 0:
            self._read(node)
        node.step()
        node.send()
        node.follow()
        if self.random.random() < 0.1:
            node.disk.flushed = len(node.disk.log)

    # --- network ------------------------------------------------------------------------------------------------------

    def _delay(self) -> float | None:
        """How long something travels; None: it is lost."""
        draw = self.random.random()
        if draw < self.weather.lost:
            return None
        if draw < self.weather.lost + self.weather.slow:
            return 5.0 * self.random.random()
        return 0.005 + 0.03 * self.random.random()

    def _carry(self, source: str, target: str, act: Callable[[], None]) -> bool:
        """Have `act` done when it has travelled from source to target, unless it gets lost."""
        delay = None if (source, target) in self.cut else self._delay()
        if delay is None:
            return False
        self.after(delay, act)
        return True

    def send(self, source: str, target: str, message: Fetch | Reply) -> None:
        node, life = self.nodes[target], self.nodes[target].life
        self._carry(source, target, lambda: self._arrive(node, life, lambda: node.receive(message)))

    def _arrive(self, node: Node, life: int, act: Callable[[], None]) -> None:
        """For the process that was there, when it runs."""
        if node.life != life or node.member is None:
            return
        if self.now < node.paused_until:
            self.after(node.paused_until - self.now + 0.001, lambda: self._arrive(node, life, act))
        else:
            act()

    def _call(self, node: Node, request: Callable[[], Callable[[], None]]) -> None:
        """A request to etcd; what it returns is done when the answer has come back."""

        def apply() -> None:
            if self.etcd.is_up:
                answer, life = request(), node.life
                self._carry(ETCD, node.name, lambda: self._arrive(node, life, answer))

        self._carry(node.name, ETCD, apply)

    # --- etcd ---------------------------------------------------------------------------------------------------------

    def _lease_ends(self) -> float:
        early = self.random.random() < self.weather.early
        return self.now + (self.random.random() if early else LEASE_S + 0.5 * self.random.random())

    def _keep_lease(self, node: Node) -> None:
        """Renew the node's lease and its registration; get a lease if it has none."""
        member, life, sent_s = node.member, node.life, node.clock()
        assert member is not None
        lease, record = member.lease, node.record()

        def renew() -> Callable[[], None]:
            if lease is None:
                number = self.etcd.grant(self._lease_ends())
                return lambda: granted(number)
            if not self.etcd.renew(lease.number, self._lease_ends()):
                return lambda: member.lease_gone(lease.number)
            self.etcd.put(f"members/{node.name}", Registration(node.name, record), lease.number)
            return lambda: granted(lease.number)

        def granted(number: int) -> None:
            known = member.lease
            if node.life == life and (known is None or (known.number == number and known.renewed_s < sent_s)):
                node.lease_granted(number, sent_s, LEASE_S)

        self._call(node, renew)

    def _read(self, node: Node) -> None:
        member = node.member
        assert member is not None

        def read() -> Callable[[], None]:
            view = self.etcd.view()
            return lambda: member.learn(view)

        self._call(node, read)

    def ask(self, node: Node, request: Transaction | RevokeLease) -> None:
        """A request of a member."""
        member, life = node.member, node.life
        assert member is not None

        def decide() -> Callable[[], None]:
            if isinstance(request, RevokeLease):
                self.etcd.revoke(request.lease)
                self.changed()
                return lambda: member.lease_gone(request.lease)
            before = self.etcd.view().state
            outcome = self.etcd.decide(request)
            if outcome is Outcome.SUCCEEDED and request.kind is Kind.ELECT and before is not None:
                self.checker.unclean += not before.names(node.name, node.disk.incarnation)
            self.changed()
            view = self.etcd.view()
            return lambda: answer(outcome, view)

        def answer(outcome: Outcome, view: View | None) -> None:
            member.answered(request.number, outcome)  # type: ignore[union-attr]  # only of transactions
            if view is not None:
                member.learn(view)
            node.step()

        self._call(node, decide)
        if isinstance(request, Transaction):
            give_up = lambda: self._arrive(node, life, lambda: answer(Outcome.UNKNOWN, None))  # noqa: E731
            self.after(ANSWER_S, give_up)

    def acknowledged(self, node: Node) -> None:
        node.step()

    def changed(self) -> None:
        """Tell all that watch, each after a delay of its own."""
        view = self.etcd.view()
        for node in self.nodes.values():
            member, life = node.member, node.life
            if member is not None:
                learn = lambda node=node, member=member, life=life: self._arrive(  # noqa: E731
                    node, life, lambda: member.learn(view)
                )
                self._carry(ETCD, node.name, learn)


def config_of(names: list[str], mode: str) -> GroupConfig:
    return GroupConfig(format=FORMAT, mode=mode, file_size=1 << 30, members=tuple(names))
