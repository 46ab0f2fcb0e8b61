"""The manager follows the orders of its coordinator, and a new master is registered as soon as it is certain."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from rocketpy.failover.member_block import NO_DEADLINE_NS, Following, MemberBlock, MemberOrders
from rocketpy.failover.rules.states import State
from rocketpy.processes.member.certainty import GRACE_S, MasterCertainty
from rocketpy.processes.member.manager_role import LOOK_S, ManagerRole, followed_address
from rocketpy.processes.member.shown import MemberShown
from rocketpy.reactor.master_link import MasterLink
from tests.support.slow_path import SlowPathRig

EPOCH, OWN_ID = 7, 3
MASTER = MemberOrders(is_master=True, epoch=EPOCH, is_broker_0=True)
FOLLOWING = Following(member="b", epoch=8, ha_address="10.0.0.2:10912", address="10.0.0.2:10911")


class Rig:
    """A manager with its duty to register, and what its coordinator shares with it. Run it with a mocked clock."""

    def __init__(self, root: Path) -> None:
        self.block, self.shown = MemberBlock(), MemberShown(trio.current_time)
        self.broker = SlowPathRig(root, namesrv_addr="10.0.0.1:9876")
        self.link = MasterLink()
        self.certainty = MasterCertainty(self.block, self.shown, trio.current_time)
        self.broker.broker.be_member(OWN_ID, self.certainty.epoch, lambda: None, self.broker.name_servers)
        controller = self.broker.broker
        self.role = ManagerRole(
            self.block, self.certainty, controller.be_master, controller._outer_api.topics_changed, self.link
        )

    @property
    def registered(self) -> list[tuple[str, str | None]]:
        """Ids and epochs, in order."""
        fields = [request.ext_fields or {} for request in self.broker.name_servers.requests(103)]
        return [(each["brokerId"], each.get("masterEpoch")) for each in fields]


@pytest.mark.parametrize("is_shown_late", [False, True])
def test_a_new_master_is_registered_when_its_deadline_holds(tmp_path: Path, is_shown_late: bool) -> None:
    """Orders are given before the deadline is extended, and the lease is shown last. A manager that looked in between
    registered nothing for a period of registrations: until then the route showed the last master, or none.
    Fault: A new master whose manager saw its orders too early registered up to a whole period late."""

    async def main() -> None:
        rig = Rig(tmp_path)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.broker.broker._outer_api.run)
            nursery.start_soon(rig.role.run)
            await trio.sleep(1)
            assert rig.registered == [(str(OWN_ID), None)]
            if not is_shown_late:
                rig.shown.show(State.MASTER, EPOCH, 2, trio.current_time() + 6)
            rig.block.give(MASTER)
            await trio.sleep(2 * LOOK_S)
            assert rig.registered == [(str(OWN_ID), None)], "it is not certain yet"
            rig.block.deadline_ns = NO_DEADLINE_NS
            if is_shown_late:
                await trio.sleep(2 * LOOK_S)
                rig.shown.show(State.MASTER, EPOCH, 2, trio.current_time() + 6)
            await trio.sleep(2 * LOOK_S)
            assert rig.registered[1:] == [("0", str(EPOCH))]
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_master_without_its_lease_is_registered_when_it_has_run_long_enough(tmp_path: Path) -> None:
    async def main() -> None:
        rig = Rig(tmp_path)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.broker.broker._outer_api.run)
            nursery.start_soon(rig.role.run)
            rig.block.deadline_ns = NO_DEADLINE_NS
            rig.block.give(MASTER)
            await trio.sleep(GRACE_S - LOOK_S)
            assert ("0", str(EPOCH)) not in rig.registered
            await trio.sleep(4 * LOOK_S)
            assert rig.registered[-1] == ("0", str(EPOCH))
            count = len(rig.registered)
            await trio.sleep(GRACE_S)
            assert len(rig.registered) == count, "once"
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_slave_follows_the_master_that_is_named(tmp_path: Path) -> None:
    async def main() -> None:
        rig = Rig(tmp_path)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.role.run)
            for following in (FOLLOWING, attrs.evolve(FOLLOWING, address="10.0.0.3:10911"), None):
                rig.block.give(MemberOrders(following=following))
                await trio.sleep(2 * LOOK_S)
                assert followed_address(rig.block) == (following.address if following else None)
                assert rig.link.master() == ((following.address, following.ha_address) if following else ("", ""))
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
