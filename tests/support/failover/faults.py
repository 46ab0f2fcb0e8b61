"""What happens to a group: crashes with and without loss, pauses, cut links, clocks, etcd that is away, operators."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from rocketpy.failover.rules.records import SwitchRequest

from .node import Node
from .world import ETCD, World


@attrs.define(eq=False)
class Faults:
    """Does one thing after the other to a world until `until`."""

    world: World
    until: float
    losses: bool  # power and disks may be lost
    spares_one: bool = True  # never the last store that has all that was acknowledged

    def begin(self) -> None:
        self.world.after(2.0 + 2.0 * self.world.random.random(), self._next)

    def _next(self) -> None:
        world = self.world
        if world.now >= self.until:
            return
        kinds: list[Callable[[Node], None]] = [self.kill, self.pause, self.part, self.part, self.etcd_down, self.switch]
        kinds += [self.break_store]
        if self.losses:
            kinds += [self.lose_power, self.lose_disk]
        node = world.random.choice(list(world.nodes.values()))
        fault = world.random.choice(kinds)
        if world.talks:
            print(f"{world.now:7.2f} {node.name} fault: {fault.__name__}")
        fault(node)
        world.after(2.5 * world.random.random(), self._next)

    def _back(self, node: Node) -> None:
        life = node.life
        self.world.after(6.0 * self.world.random.random(), lambda: restart(node, life))

    def kill(self, node: Node) -> None:
        node.stop()
        self._back(node)

    def _is_spared(self, node: Node) -> bool:
        state = self.world.etcd.view().state
        if state is None or not self.spares_one:
            return False
        whole = [name for name, each in self.world.nodes.items() if state.names(name, each.disk.incarnation)]
        return whole == [node.name]

    def lose_power(self, node: Node) -> None:
        if self._is_spared(node):
            return
        node.lose_power(self.world.random.randint(0, len(node.disk.log)))
        self._back(node)

    def lose_disk(self, node: Node) -> None:
        if self._is_spared(node):
            return
        node.lose_disk()
        self._back(node)

    def pause(self, node: Node) -> None:
        node.paused_until = self.world.now + 5.0 * self.world.random.random()

    def break_store(self, node: Node) -> None:
        """Its disk is full, or no process tree opens the store: it cannot serve as master for some time."""
        node.fault, node.is_open = "it is broken", self.world.random.random() < 0.5

        def repair() -> None:
            node.fault, node.is_open = "", True

        self.world.after(15.0 * self.world.random.random(), repair)

    def part(self, node: Node) -> None:
        """Cut a link of the node, one way or both."""
        world = self.world
        other = world.random.choice([ETCD, *(name for name in world.nodes if name != node.name)])
        links = [{(node.name, other)}, {(other, node.name)}, {(node.name, other), (other, node.name)}]
        cut = world.random.choice(links)
        world.cut |= cut

        def heal() -> None:
            world.cut -= cut

        world.after(7.0 * world.random.random(), heal)

    def etcd_down(self, _node: Node) -> None:
        world = self.world
        if world.random.random() < 0.5:
            return
        world.etcd.is_up = False

        def up() -> None:
            world.etcd.is_up = True

        world.after(5.0 * world.random.random(), up)

    def switch(self, node: Node) -> None:
        """An operator wants this node to be master."""
        state = self.world.etcd.view().state
        if state is not None:
            request = SwitchRequest(from_epoch=state.epoch, to=node.name, until_ms=int(self.world.now * 1000) + 5000)
            self.world.etcd.put("switch", request)


def restart(node: Node, life: int) -> None:
    """Start the process again, unless something else has happened to it since."""
    if node.life == life and node.member is None:
        node.start()


def heal(world: World) -> None:
    """End everything that is still going on; from now on nothing fails."""
    world.cut.clear()
    world.etcd.is_up = True
    world.weather.lost = world.weather.slow = world.weather.early = 0.0
    for node in world.nodes.values():
        node.paused_until = 0.0
        node.fault, node.is_open = "", True
        if node.member is None:
            node.start()
