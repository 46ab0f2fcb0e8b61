"""An election by hand that gives messages up: the former lone master returns, and what only it had is cut and kept."""

from __future__ import annotations

import trio

from rocketpy.failover.etcd import operator
from rocketpy.failover.etcd.gateway import Access, Gateway
from rocketpy.failover.etcd.group_keys import GroupKeys
from tests.support.ha.clients import Clients
from tests.support.ha.group import Group
from tests.support.pair import log_hashes


def elect_unclean(group: Group, target: str) -> None:
    """As `mqadmin haElect --unclean` does it."""

    async def elect() -> None:
        async with Gateway(Access(addresses=group.etcd.addresses)) as gateway:
            keys = GroupKeys(gateway, "DefaultCluster", "broker-a")
            await operator.elect(keys, operator.unclean_election(await keys.read(), target))

    trio.run(elect)


def test_the_former_lone_master_returns_and_is_cut(pair: Group, seed: int) -> None:
    """Fault: After an unclean election the former lone master halted instead of being cut."""
    with Clients(pair.servers, pair.history, seed):
        first = pair.wait_for_master()
        second = pair.other(first)
        pair.members[second].kill_all()
        pair.wait_for_lone_master(first)
        alone = len(pair.history.answers)
        pair.wait_for(lambda: len(pair.history.answers) > alone + 200, "messages that only the lone master has")
        pair.members[first].kill_all()
        pair.members[second].begin()
        pair.wait_for(lambda: pair.master() is None and pair.registered(second), f"{second} without a master")
        elect_unclean(pair, second)
        pair.wait_for_lone_master(second)
        pair.members[first].begin()
        pair.wait_until_healed()
    stores = [member.store for member in pair.members.values()]
    pair.wait_for(lambda: len({tuple(log_hashes(store).items()) for store in stores}) == 1, "equal logs")
    assert list((pair.members[first].store / "diverged").rglob("*")), "what was cut is kept"
    assert "is HALTED" not in pair.members[first].text()
