"""`rocketpy store set-aside`: the whole store of a stopped member is moved, or nothing is."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)
pytest.importorskip("httpcore")

from rocketpy.cli.set_aside import set_aside
from rocketpy.config import BrokerSettings, HaMode
from rocketpy.errors import ConfigError, StoreError
from rocketpy.failover.etcd.operator import OperatorRefused
from rocketpy.failover.rules.records import GroupState, MasterRecord
from rocketpy.failover.rules.requests import View
from rocketpy.processes.member.identity import open_identity
from rocketpy.store.recovery import store_lock
from rocketpy.store.recovery.lifecycle import close_store, open_store
from tests.support.store_writer import StoreWriter, small_config


def settings_of(root: Path, member: str = "b", commitlog: str = "") -> BrokerSettings:
    store = attrs.evolve(
        small_config(root), ha_mode=HaMode.AUTOMATIC, ha_member=member, store_path_commit_log=commitlog
    )
    return attrs.evolve(BrokerSettings(), store=store)


async def healthy() -> View:
    state = GroupState(epoch=5, master="a", in_sync={"a": "ia"})
    return View(revision=9, state=state, master=MasterRecord(member="a", epoch=5, lease=1))


def written(settings: BrokerSettings) -> str:
    """Opens the store, and writes something. Returns: its incarnation."""
    opened = open_store(settings.store)
    identity = open_identity(opened, is_sync_flush=False)
    with StoreWriter(settings.store, opened.control) as writer:
        writer.put("T", 0, b"body", b"")
    close_store(opened, clean=True)
    return identity.incarnation


@pytest.mark.parametrize("commitlog", ["", "log"])
def test_the_member_begins_again_and_nothing_is_lost(tmp_path: Path, commitlog: str) -> None:
    settings = settings_of(tmp_path / "store", commitlog=str(tmp_path / commitlog) if commitlog else "")
    before = written(settings)
    told = set_aside(settings, healthy)
    (aside,) = (tmp_path / "store").glob("aside-*")
    assert str(aside) in told and "copies everything from a" in told
    assert (aside / "incarnation").read_text().split()[0] == before
    logs = [aside / "commitlog"] if not commitlog else list(tmp_path.glob("log.aside-*"))
    assert [path.stat().st_size > 0 for log in logs for path in log.iterdir()] == [True]
    opened = open_store(settings.store)
    again = open_identity(opened, is_sync_flush=False)
    assert again.is_new and again.incarnation != before and opened.control.published_phy_offset == 0
    close_store(opened, clean=True)


def everything(root: Path) -> set[Path]:
    return set(root.rglob("*"))


def test_it_is_refused_while_the_broker_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_lock, "ORPHANS_WAIT_S", 0.0)
    settings = settings_of(tmp_path / "store")
    opened = open_store(settings.store)
    with pytest.raises(StoreError, match="the store is in use"):
        set_aside(settings, healthy)
    close_store(opened, clean=True)


@pytest.mark.parametrize(
    ("member", "reason"), [("a", "a is the master, in epoch 5"), ("b", "b is the only one in sync")]
)
def test_it_is_refused_when_the_group_needs_the_store(tmp_path: Path, member: str, reason: str) -> None:
    settings = settings_of(tmp_path / "store", member)
    written(settings)
    there = everything(tmp_path)

    async def alone() -> View:
        view = await healthy()
        assert view.state is not None
        return attrs.evolve(view, state=attrs.evolve(view.state, in_sync={member: "x"}))

    with pytest.raises(OperatorRefused, match=reason):
        set_aside(settings, alone)
    assert everything(tmp_path) == there


def test_a_broker_without_a_group_has_only_this_store(tmp_path: Path) -> None:
    settings = settings_of(tmp_path / "store")
    plain = attrs.evolve(settings, store=attrs.evolve(settings.store, ha_mode=HaMode.PLAIN))
    with pytest.raises(ConfigError, match=r"only a member of a group .*replace-a-slave"):
        set_aside(plain, healthy)
    with pytest.raises(StoreError, match="there is no store in"):
        set_aside(settings, healthy)
