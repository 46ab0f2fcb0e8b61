"""Coordinators in simulated time, on a model of etcd: leases, reads, decisions, and what happens when etcd is away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio
import trio.lowlevel
import trio.testing

from rocketpy.failover.rules.conditions import HINT_S
from rocketpy.failover.rules.fences import FOR_EVER_S
from rocketpy.failover.rules.in_sync import Ack
from rocketpy.failover.rules.records import SwitchRequest
from rocketpy.failover.rules.requests import Report
from rocketpy.failover.rules.states import State
from tests.support.failover.live import LEASE_S, LiveBroker, LiveGroup, live_group
from tests.support.failover.model_keys import ModelKeys
from tests.support.failover.node import Disk, Node
from tests.support.failover.world import config_of

Story = Callable[[LiveGroup, ModelKeys], Awaitable[None]]


def play(story: Story, members: str = "ab", mode: str = "sync", in_sync_min: int = 1) -> None:
    async def main() -> None:
        keys = ModelKeys()
        async with live_group(keys.opened, list(members), mode=mode, in_sync_min=in_sync_min) as group:
            await story(group, keys)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def other(name: str) -> str:
    return "b" if name == "a" else "a"


def test_a_registration_without_an_answer_delays_no_renewal(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> None:
        await trio.sleep_forever()

    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        slave = other(await group.until_master(set("ab")))
        await group.until_in_sync()
        monkeypatch.setattr(ModelKeys, "register", never)
        group.nodes[slave].fault = "its disk is full"  # to be registered
        await trio.sleep(4 * LEASE_S)
        assert slave in keys.etcd.view().members

    play(story)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_killed_master_is_replaced_when_its_lease_has_ended(mode: str) -> None:
    async def story(group: LiveGroup, _keys: ModelKeys) -> None:
        first = await group.until_master(set("ab"))
        group.kill(first)
        killed_s = trio.current_time()
        await group.until(lambda: group.master() == other(first))
        assert LEASE_S - 1 < trio.current_time() - killed_s < LEASE_S + 2
        await group.start(first)
        await group.until_in_sync()
        member = group.coordinators[first].member
        await group.until(lambda: member.state is State.IN_SYNC)

    play(story, mode=mode)


def test_a_master_that_is_back_before_its_lease_has_ended_is_elected_again() -> None:
    """In an asynchronous group it has what no follower had yet. It gives the lease of its last process back only when
    others can compare its log with theirs."""

    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        first = await group.until_master(set("abc"))
        group.cut |= set("abc") - {first}
        await trio.sleep(0.5)
        group.kill(first)
        group.cut.clear()
        killed_s, end = trio.current_time(), len(group.nodes[first].disk.log)
        assert all(len(node.disk.log) < end for name, node in group.nodes.items() if name != first)
        await group.start(first)
        await group.until(lambda: group.master() is not None)
        assert group.master() == first and trio.current_time() - killed_s < LEASE_S
        await group.until_master({first})

    play(story, "abc", mode="async")


def test_with_too_few_members_in_sync_nothing_is_stored(caplog: pytest.LogCaptureFixture) -> None:
    async def story(group: LiveGroup, _keys: ModelKeys) -> None:
        first = await group.until_master(set("ab"))
        group.kill(other(first))
        await group.until(lambda: not group.coordinators[first].member.orders.duties.takes_sends)
        end = len(group.nodes[first].disk.log)
        await trio.sleep(2 * LEASE_S)
        assert group.master() == first and len(group.nodes[first].disk.log) == end
        assert "1 members are in sync, minInSyncReplicas is 2: messages are refused" in caplog.text
        await group.start(other(first))
        await group.until_master({first})

    play(story, in_sync_min=2)


def test_a_second_broker_of_the_same_name_leaves_the_master_alone(caplog: pytest.LogCaptureFixture) -> None:
    """haMember copied to another machine. It would give the master's lease back as that of its own last process.
    Fault: A second broker with the master's haMember ended the master's lease again and again."""

    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        first = await group.until_master(set("ab"))
        state, master = keys.etcd.view().state, keys.etcd.view().master
        settings = group.nodes[first].settings
        group.nodes["second"] = Node("second", settings, group, Disk(group.incarnation()))
        await group.start("second")
        for _ in range(40):
            await trio.sleep(LEASE_S / 10)
            now = keys.etcd.view()
            assert (now.state, now.master, now.members[first].address) == (state, master, first)
        assert f"member {first} is registered by the broker at {first}" in caplog.text
        group.stop("second")
        await group.until(lambda: group.nodes["second"].member is None)
        del group.nodes["second"]

    play(story)


class Impostors(LiveBroker):
    """Somebody who knows the secret follows under twenty names of no member. The set could not be written any more."""

    def report(self) -> Report:
        known = super().report()
        made = {f"liar{n}": Ack(f"i{n}", known.epochs.last, known.end) for n in range(20)}
        return attrs.evolve(known, acks={**known.acks, **made})


def test_a_follower_that_is_no_member_counts_for_nobody() -> None:
    """Fault: A follower under a name of no member entered the in-sync set."""

    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        first = await group.until_master(set("ab"))
        before = keys.etcd.view()
        group.coordinators[first]._broker = Impostors(group.nodes[first])
        await trio.sleep(2 * LEASE_S)
        assert (keys.etcd.view().state, keys.etcd.view().master) == (before.state, before.master)
        await group.until_master({first})

    play(story)


def test_a_member_that_is_replaced_by_another_machine_waits_for_the_lease_of_the_first_one() -> None:
    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        first = await group.until_master(set("ab"))
        lost, killed_s = other(first), trio.current_time()
        group.kill(lost)
        group.nodes["new"] = Node("new", group.nodes.pop(lost).settings, group, Disk(group.incarnation()))
        await group.start("new")
        await group.until(lambda: [one.address for one in keys.etcd.view().members.values()] == [first, "new"])
        assert trio.current_time() - killed_s < LEASE_S + 1.5
        group.stop("new")
        member = group.coordinators[first].member
        await group.until(lambda: {name for name, _ in member.orders.counting} == {first})

    play(story)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("then", ["abc", "a"])
def test_the_list_of_members_changes_while_all_are_stopped(then: str, mode: str) -> None:
    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        await group.until_master(set("ab"))
        before = keys.etcd.view().state
        for name in "ab":
            group.stop(name)
        await group.until(lambda: all(node.member is None for node in group.nodes.values()))
        del keys.etcd.keys["config"]  # what is left says who is in sync
        for name in then:
            if name not in group.nodes:
                group.add(name, list(then))
            node = group.nodes[name]
            node.settings = attrs.evolve(node.settings, config=config_of(list(then), mode))
            await group.start(name)
        await group.until_in_sync()
        after = keys.etcd.view().state
        assert before is not None and after is not None and after.epoch > before.epoch
        assert after.master in "ab" and set(after.in_sync) == set(then)

    play(story, mode=mode)


def test_a_master_that_stops_gives_its_lease_back() -> None:
    async def story(group: LiveGroup, _keys: ModelKeys) -> None:
        first = await group.until_master(set("abc"))
        group.stop(first)
        stopped_s = trio.current_time()
        await group.until_master(set("abc") - {first})
        assert trio.current_time() - stopped_s < 1.5

    play(story, "abc")


def test_a_master_that_stops_leaves_nothing_behind() -> None:
    """An asynchronous group has acknowledged what no follower has yet; a stop is no reason to lose that."""

    async def story(group: LiveGroup, _keys: ModelKeys) -> None:
        first = await group.until_master(set("ab"))
        await group.until_in_sync()
        group.cut.add(other(first))
        await trio.sleep(0.3)
        group.stop(first)
        await trio.sleep(0.3)
        group.cut.clear()
        await group.until_master({other(first)})
        left = group.nodes[first].disk.log
        assert group.nodes[other(first)].disk.log[: len(left)] == left

    play(story, mode="async")


def test_a_switch_over_takes_one_transaction() -> None:
    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        first = await group.until_master(set("ab"))
        before = keys.etcd.view().state
        assert before is not None
        await keys.request_switch(SwitchRequest(from_epoch=before.epoch, to=other(first), until_ms=1 << 60))
        wished_s = trio.current_time()
        await group.until_master({other(first)})
        assert trio.current_time() - wished_s < 1.0
        assert keys.etcd.view().state == attrs.evolve(before, epoch=before.epoch + 1, master=other(first))

    play(story)


def test_a_pair_goes_on_without_etcd_and_asks_it_at_a_bounded_rate() -> None:
    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        first = await group.until_master(set("ab"))
        keys.is_away, asked = True, keys.asked
        await trio.sleep(10 * LEASE_S)
        assert group.master() == first and group.coordinators[first].member.orders.deadline_s == FOR_EVER_S
        await group.until_master({first})
        assert keys.asked - asked < 2 * 10 * LEASE_S * 12  # two members, lease and watch five times a second each
        keys.is_away = False
        await group.until_in_sync()
        assert {"lease", "read"} <= group.coordinators[first].faults.counts.keys()

    play(story)


def test_an_asynchronous_master_is_fenced_before_its_lease_ends() -> None:
    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        first = await group.until_master(set("ab"))
        keys.is_away = True
        await group.until(lambda: group.coordinators[first].member.state is State.FENCED)
        ends = keys.etcd.leases[keys.etcd.keys["master"].lease]
        assert trio.current_time() < ends
        acknowledgements = group.checker.acknowledgements
        await trio.sleep(LEASE_S)
        assert group.checker.acknowledgements == acknowledgements
        keys.is_away = False
        await group.until_master(set("ab"))

    play(story, mode="async")


def test_a_lease_that_ends_early_is_replaced_in_the_same_epoch() -> None:
    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        first = await group.until_master(set("ab"))
        before, lease = keys.etcd.view().state, keys.etcd.keys["master"].lease
        await keys.revoke(lease)
        await group.until(lambda: "master" in keys.etcd.keys and keys.etcd.keys["master"].lease != lease)
        assert keys.etcd.view().state == before and group.master() == first
        await group.until_in_sync()

    play(story)


def test_a_member_with_other_settings_halts_and_names_them(caplog: pytest.LogCaptureFixture) -> None:
    async def story(group: LiveGroup, _keys: ModelKeys) -> None:
        first = await group.until_master(set("ab"))
        node = group.nodes[other(first)]
        group.kill(node.name)
        node.settings = attrs.evolve(node.settings, config=attrs.evolve(node.settings.config, file_size=1 << 20))
        await group.start(node.name)
        await group.until(lambda: node.member is not None and node.member.state is State.HALTED)
        assert not any(attrs.astuple(group.coordinators[node.name].member.duties))
        assert caplog.text.count(f"{node.name} is HALTED") == 1
        assert "mappedFileSizeCommitLog is 1048576 here and 1073741824 in the group" in caplog.text
        assert group.master() == first

    play(story)


def test_a_longer_log_of_a_broker_outside_of_the_group_is_told_when_a_master_is_elected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It was removed from the group, and all others have lost their tails: it keeps nobody from an election."""

    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        first = await group.until_master(set("ab"))
        known, epoch = keys.etcd.view(), group.coordinators[first].member.epoch
        lease = keys.etcd.grant(trio.current_time() + 1000)
        record = attrs.evolve(known.members[first], end=1 << 40, lease=lease)
        await keys.register("longer", attrs.evolve(record, epoch=epoch))
        await keys.register("earlier", attrs.evolve(record, epoch=epoch - 1))
        await trio.sleep(LEASE_S)
        assert "haMembers" not in caplog.text
        group.kill(first)
        await group.until(lambda: group.master() == other(first))
        (line,) = [each.getMessage() for each in caplog.records if "not in haMembers" in each.getMessage()]
        assert line.startswith(f"failover: {other(first)} is elected with a log")
        assert f"the log of longer, which is not in haMembers, ends at {1 << 40} in epoch {epoch}" in line
        await keys.revoke(lease)
        await group.start(first)
        await group.until_in_sync()

    play(story)


def test_a_peer_that_names_an_epoch_that_etcd_does_not_have_changes_nothing() -> None:
    """Fault: A HELLO that named an epoch unknown to etcd ended the mastership of a member."""

    async def story(group: LiveGroup, _keys: ModelKeys) -> None:
        first = await group.until_master(set("ab"))
        await group.until_in_sync()
        node = group.nodes[first]
        node.newest_epoch_seen = 2**31 - 1
        await group.until(lambda: node.newest_epoch_seen < 2**31 - 1)
        await trio.sleep(2 * HINT_S)
        assert group.master() == first and node.member is not None and node.member.epoch == node.newest_epoch_seen

    play(story)


def test_an_etcd_that_is_away_is_told_in_single_lines(caplog: pytest.LogCaptureFixture) -> None:
    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        await group.until_master(set("ab"))
        keys.is_away = True
        await trio.sleep(3 * LEASE_S)
        keys.is_away = False
        await group.until_in_sync()
        told = [record.getMessage() for record in caplog.records if "failed" in record.getMessage()]
        assert any("lease: EtcdUnavailable: connection refused" in line for line in told)
        assert not [line for line in told if "\n" in line or "File " in line]

    play(story)


def test_a_peer_is_believed_while_etcd_does_not_answer() -> None:
    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        first = await group.until_master(set("ab"))
        await group.until_in_sync()
        keys.is_away = True
        member = group.coordinators[first].member
        group.nodes[first].newest_epoch_seen = member.epoch + 1
        await group.until(lambda: member.state is State.JOINING)
        keys.is_away = False
        await group.until_master(set("ab"))

    play(story)
