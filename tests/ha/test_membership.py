"""Members come and go, one at a time, while the group acknowledges: nothing is lost, and there is no election."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import trio

from rocketpy.config import load_broker_config
from rocketpy.failover.etcd import operator
from rocketpy.failover.etcd.access import group_config
from rocketpy.failover.etcd.gateway import Access, Gateway
from rocketpy.failover.etcd.group_keys import GroupKeys
from tests.support.ha.clients import Clients
from tests.support.ha.group import Group, Member, made_member, real_group
from tests.support.pair import NameServer


def agree(group: Group, member: Member, members: str) -> None:
    """As `mqadmin haConfigure` does it with the file of a member."""
    settings = load_broker_config(None, {**member.settings, "haMembers": members}, {"HOME": "/nowhere"})

    async def configure() -> None:
        async with Gateway(Access(addresses=group.etcd.addresses)) as gateway:
            await operator.configure(GroupKeys(gateway, "DefaultCluster", "broker-a"), group_config(settings))

    trio.run(configure)


def test_a_third_member_comes_and_the_second_goes(tmp_path: Path, seed: int) -> None:
    with real_group(tmp_path) as group, ExitStack() as stack:
        assert isinstance(group.namesrv, NameServer)
        third = made_member(tmp_path, "abc", "c", 3, group.etcd, group.namesrv, None, {})
        stack.callback(third.kill_all)
        with Clients([*group.servers, third.server], group.history, seed):
            first = group.wait_for_master()
            second, epoch = group.other(first), group.epoch()
            agree(group, group.members[first], "a,b,c")
            group.members["c"] = third
            third.begin()
            group.wait_until_healed()
            assert group.epoch() == epoch, "the group went on"
            assert group.members[second].stop() == 0
            group.members[second].process = None
            group.wait_for(lambda: group.registered(second) is None, f"{second} to be gone")
            group.wait_until_healed()
            agree(group, group.members[first], f"{first},c")
            group.wait_for_master({first})
            assert group.epoch() == epoch
            del group.members[second]
            group.members[first].kill_all()
            group.wait_for_lone_master("c")
            group.members[first].begin()
            group.wait_until_healed()
        group.check()
