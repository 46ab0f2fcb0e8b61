"""Members with a real coordinator, on simulated stores and a simulated network; etcd is real or a model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import attrs
import trio

from rocketpy.failover.etcd.coordinator import Coordinator, Place
from rocketpy.failover.etcd.group_keys import GroupKeys
from rocketpy.failover.rules.requests import Orders, Report, RevokeLease, Transaction, View
from rocketpy.failover.rules.settings import Settings
from rocketpy.failover.rules.states import Change, State

from .checker import Checker
from .node import Disk, Fetch, Node, Reply, Serials
from .world import config_of

TURN_S = 0.05
LEASE_S = 3.0
DEADLINE_S = 60.0


@attrs.define(eq=False)
class LiveBroker:
    """A node as its coordinator sees it."""

    node: Node

    def report(self) -> Report:
        return self.node.report()

    def apply(self, orders: Orders) -> None:
        if self.node.member is not None:
            self.node.is_leaving = orders.duties != self.node.member.duties
            self.node.apply()

    def refute_epoch(self, seen: int, newest: int) -> None:
        if self.node.newest_epoch_seen == seen:
            self.node.newest_epoch_seen = newest


@attrs.define(eq=False)
class LiveGroup(Serials):
    """Members by name. `cut` has the names of those that no other member reaches."""

    nursery: trio.Nursery
    keys: Callable[[], AbstractAsyncContextManager[GroupKeys]]
    checker: Checker
    lease_s: float
    mode: str
    in_sync_min: int = 1
    nodes: dict[str, Node] = attrs.field(factory=dict)
    coordinators: dict[str, Coordinator] = attrs.field(factory=dict)
    scopes: dict[str, trio.CancelScope] = attrs.field(factory=dict)
    cut: set[str] = attrs.field(factory=set)

    @property
    def now(self) -> float:
        return trio.current_time()

    def tell(self, name: str, change: Change) -> None:
        self.coordinators[name].tell(change)

    def ask(self, node: Node, request: Transaction | RevokeLease) -> None:
        raise AssertionError("the coordinator asks")

    def acknowledged(self, node: Node) -> None:
        self.coordinators[node.name].wake()

    def send(self, source: str, target: str, message: Fetch | Reply) -> None:
        if target in self.nodes:  # otherwise its machine is gone
            self.nursery.start_soon(self._carry, source, target, self.nodes[target].life, message)

    async def _carry(self, source: str, target: str, life: int, message: Fetch | Reply) -> None:
        await trio.sleep(0.001)
        node = self.nodes.get(target)
        if node is not None and node.life == life and not {source, target} & self.cut:
            node.receive(message)

    # --- members ------------------------------------------------------------------------------------------------------

    def add(self, name: str, members: list[str]) -> None:
        settings = Settings(
            member=name,
            config=config_of(members, self.mode),
            lease_s=self.lease_s,
            keep_up_s=1.0,
            in_sync_min=self.in_sync_min,
        )
        self.nodes[name] = Node(name, settings, self, Disk(self.incarnation()))

    async def start(self, name: str) -> None:
        await self.nursery.start(self._live, name)

    async def _live(self, name: str, *, task_status: trio.TaskStatus[None]) -> None:
        node = self.nodes[name]
        async with self.keys() as keys, trio.open_nursery() as nursery:
            place = Place(address=name, ha_address=name, broker_id=1)
            made = Coordinator(node.settings, place, keys, LiveBroker(node), clock=node.clock)
            node.start()
            node.member, self.coordinators[name] = made.member, made
            nursery.start_soon(self._turn, node)
            with trio.CancelScope() as self.scopes[name]:
                task_status.started()
                await made.run()
            if node.member is made.member:  # it was not killed, and the coordinator has left: now the rest stops
                node.stop()
            nursery.cancel_scope.cancel()

    async def _turn(self, node: Node) -> None:
        while node.member is not None:
            node.send()
            node.follow()
            await trio.sleep(TURN_S)

    def kill(self, name: str) -> None:
        """As kill -9 does it: nothing is handed on, and the lease is not given back."""
        member = self.coordinators[name].member
        member.lease, member.state = None, State.JOINING
        self.nodes[name].stop()
        self.scopes[name].cancel()

    def stop(self, name: str) -> None:
        """A clean stop."""
        self.scopes[name].cancel()

    async def view(self) -> View:
        async with self.keys() as keys:
            return await keys.read()

    # --- waiting ------------------------------------------------------------------------------------------------------

    def master(self) -> str | None:
        serving = [name for name, node in self.nodes.items() if node.member and node.member.state is State.MASTER]
        return max(serving, key=lambda name: self.nodes[name].disk.epochs.last) if serving else None

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait; members change with every turn, there is nothing to be told by."""
        with trio.fail_after(DEADLINE_S):
            while not condition():  # noqa: ASYNC110  # see above
                await trio.sleep(TURN_S)

    async def until_master(self, among: set[str]) -> str:
        """Wait for a master among these, that acknowledges."""
        begun = self.checker.acknowledgements
        await self.until(lambda: self.master() in among and self.checker.acknowledgements > begun)
        return self.master() or ""

    async def until_in_sync(self) -> None:
        """Wait until everybody that runs is in sync. A member that counts already may not be in the set yet."""
        running = {name for name, node in self.nodes.items() if node.member is not None}

        def is_in_sync(name: str) -> bool:
            member = self.nodes[name].member
            return member is not None and member.state is State.IN_SYNC

        def is_whole() -> bool:
            name = self.master()
            if name is None or {one for one, _ in self.coordinators[name].member.orders.counting} != running:
                return False
            return all(is_in_sync(one) for one in running - {name})

        await self.until(is_whole)


@asynccontextmanager
async def live_group(
    keys: Callable[[], AbstractAsyncContextManager[GroupKeys]],
    members: list[str],
    *,
    lease_s: float = LEASE_S,
    mode: str = "sync",
    in_sync_min: int = 1,
) -> AsyncIterator[LiveGroup]:
    """A group that runs, with a master and everybody in sync; at the end nothing that was promised may be missing."""
    async with trio.open_nursery() as nursery:
        group = LiveGroup(nursery, keys, Checker(mode == "sync"), lease_s, mode, in_sync_min)
        for name in members:
            group.add(name, members)
        for name in members:
            await group.start(name)
        await group.until_in_sync()
        yield group
        master = group.master()
        assert master is not None
        counting = {name for name, _ in group.coordinators[master].member.orders.counting}
        group.checker.ended({name: group.nodes[name].disk.log for name in counting})
        nursery.cancel_scope.cancel()
