"""A group that runs the last release is upgraded one member after the other, under load, as docs/run/upgrade.md says:
slaves first, then the master after a planned change. Nothing that was acknowledged is lost, and nothing is delivered
that was not sent: by plain, delayed and transactional senders, request-reply and a group of consumers."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy.codes import REPLICATION_VERSION, REPLICATION_VERSION_LOWEST
from tests.support import releases
from tests.support.ha.clients import Clients
from tests.support.ha.group import Group, Member, real_group


@pytest.fixture(scope="module")
def last_release() -> Path:
    try:
        commit = releases.commit_of_last_release()
    except releases.NoHistory as missing:
        pytest.skip(str(missing))
    assert REPLICATION_VERSION_LOWEST <= releases.version_at(commit) < REPLICATION_VERSION
    return releases.built(commit)


def directory_of(member: Member) -> Path:
    assert member.process is not None
    return Path(f"/proc/{member.process.pid}/cwd").readlink()


def upgrade(group: Group, name: str) -> None:
    member = group.members[name]
    assert member.stop() == 0, member.text()[-4000:]
    member.process = None
    # The set still has a slave that has just stopped: all would look healed before it is back.
    group.wait_for(lambda: (state := group.state()) and name not in state.in_sync, f"{name} to leave the in-sync set")
    member.prefix = []
    member.begin()
    group.wait_until_healed()


@pytest.mark.parametrize("names", ["ab", "abc"])
def test_members_are_upgraded_one_after_the_other(tmp_path: Path, seed: int, last_release: Path, names: str) -> None:
    def arrange(member: Member) -> None:
        member.prefix = releases.run_from(last_release)

    with real_group(tmp_path, names, arrange=arrange) as group:
        assert {directory_of(member) for member in group.members.values()} == {last_release}
        with Clients(group.servers, group.history, seed):
            master = group.wait_for_master()
            for name in sorted(group.members.keys() - {master}):
                upgrade(group, name)
                assert group.master() == master, "a slave was upgraded"
            new = min(group.members.keys() - {master})
            group.switch_over(new)
            group.wait_for_master({new})
            upgrade(group, master)
            group.switch_over(master)  # what the new release wrote is taken over by a member that had the old one
            group.wait_for_master({master})
            group.wait_until_healed()
        group.check()
