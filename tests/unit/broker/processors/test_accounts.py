"""Requests that show and change accounts (50 to 54), on files of their own."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest
import trio

from rocketpy.acl.accounts import Accounts
from rocketpy.acl.files import AclFiles
from rocketpy.broker.access import AccountsKeeper
from rocketpy.broker.broker import ManagerProcess
from rocketpy.remoting.abc import Peer
from rocketpy.remoting.bodies.acl import AclConfig
from rocketpy.remoting.command import RemotingCommand
from tests.support.slow_path import NOW_MS, FakeChannel, SlowPathRig
from tests.unit.broker.test_access import Published

SECRET = "only-for-tests"


class Rig(SlowPathRig):
    """A broker with access control."""

    def __init__(self, root: Path) -> None:
        files = AclFiles(root, now_ms=lambda: NOW_MS)
        files.load()
        self.published = Published()
        self.keeper = AccountsKeeper(files, self.published)
        super().__init__(root)

    @property
    def accounts(self) -> Accounts:
        """The accounts that all processes read."""
        return self.published.accounts

    def process(self) -> ManagerProcess:
        return attrs.evolve(super().process(), accounts=self.keeper)

    def answer(self, code: int, **fields: str) -> RemotingCommand:
        return trio.run(self.ask, code, fields)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def create(rig: Rig, key: str = "shop-orders", **fields: str) -> RemotingCommand:
    return rig.answer(50, accessKey=key, secretKey=SECRET, **fields)


def test_an_account_is_created_changed_and_deleted(rig: Rig) -> None:
    assert create(rig, topicPerms="orders=PUB").code == 0
    account = rig.accounts.by_key["shop-orders"]
    assert (account.secret_key, account.permissions, account.is_admin) == (SECRET, {"orders": 4}, False)
    assert create(rig, admin="true").code == 0
    assert rig.accounts.by_key["shop-orders"].is_admin
    assert rig.answer(51, accessKey="shop-orders").code == 0
    assert not rig.accounts.by_key


def test_failures_have_the_codes_and_texts_of_the_reference(rig: Rig) -> None:
    deleted = rig.answer(51, accessKey="nobody-1")
    text = "The accesskey[nobody-1] corresponding to accessConfig has been deleted failed."
    assert (deleted.code, deleted.remark) == (210, text)
    updated = rig.answer(50, accessKey="short", secretKey=SECRET)
    assert updated.code == 209 and SECRET not in str(updated.remark)
    assert create(rig, topicPerms="orders").code == 209
    white = rig.answer(53, globalWhiteAddrs="10.0.0.*", aclFileFullPath="/etc/passwd")
    assert (white.code, white.remark) == (211, "The globalWhiteAddresses[10.0.0.*] has been updated failed.")
    assert not rig.accounts.by_key and not rig.accounts.white_addresses


def test_white_addresses(rig: Rig) -> None:
    assert rig.answer(53, globalWhiteAddrs="10.0.0.*,192.168.0.1", aclFileFullPath="").code == 0
    assert rig.accounts.is_white("10.0.0.7") and not rig.accounts.is_white("10.0.1.7")


def test_versions_of_the_files(rig: Rig, tmp_path: Path) -> None:
    create(rig)
    fields = rig.answer(52).ext_fields or {}
    place = (fields["brokerName"], fields["brokerAddr"], fields["clusterName"])
    assert place == ("broker-a", "127.0.0.1:10911", "DefaultCluster")
    assert json.loads(fields["version"])["counter"] == 1
    assert list(json.loads(fields["allAclFileVersion"])) == [str(tmp_path / "conf" / "plain_acl.yml")]


def test_accounts_are_listed_without_secrets(rig: Rig) -> None:
    create(rig, groupPerms="billing=SUB")
    answer = rig.answer(54)
    [account] = AclConfig.decode(answer.body).plain_access_configs
    assert (account.access_key, account.group_perms) == ("shop-orders", ["billing=SUB"])
    assert SECRET.encode() not in (answer.body or b"")


@pytest.mark.parametrize("code", [50, 51, 53, 54])
def test_another_address_needs_to_be_an_administrators(rig: Rig, code: int) -> None:
    stranger = FakeChannel(2, Peer("10.9.9.9", 4000))
    answer = trio.run(lambda: rig.ask(code, {"accessKey": "shop-orders"}, channel=stranger))
    assert answer.code == 16


@pytest.mark.parametrize(("code", "expected"), [(50, 209), (51, 210), (52, 1), (53, 211), (54, 3)])
def test_access_control_is_off(tmp_path: Path, code: int, expected: int) -> None:
    response = trio.run(lambda: SlowPathRig(tmp_path).ask(code, {"accessKey": "k"}))
    assert (response.code, response.remark) == (expected, "access control is off on this broker (aclEnable=false)")
