"""Access control of a name server without sockets. tests/security has all codes over the network."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
import trio

from rocketpy.acl.validator import EXCEPTION
from rocketpy.codes import RequestCode
from rocketpy.config import Machine, load_namesrv_config
from rocketpy.errors import ConfigError
from rocketpy.namesrv import NameServer
from rocketpy.namesrv.access import LARGE_BYTES, AccessControl
from rocketpy.remoting.abc import Channel, Peer
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.signature import Credentials, sign
from tests.support.name_server import FakeChannel

SECRET = "12345678"
ACCOUNTS = f"""
globalWhiteRemoteAddresses:
- 10.9.9.*
accounts:
- {{accessKey: broker-a, secretKey: '{SECRET}'}}
- {{accessKey: publisher, secretKey: '{SECRET}', topicPerms: [orders=PUB]}}
- {{accessKey: operator, secretKey: '{SECRET}', admin: true}}
"""


class Served:
    """The processor behind it."""

    async def process(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        return RemotingCommand.response()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "conf").mkdir()
    return write(tmp_path / "conf" / "plain_acl.yml", ACCOUNTS)


def write(path: Path, text: str) -> Path:
    """Write by another inode: a change is seen at any time."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)
    return path


def overrides(file: Path, **others: str) -> dict[str, str]:
    home = file.parents[1]
    given = {"aclEnable": "true", "rocketmqHome": str(home), "aclBrokerAccounts": " broker-a , broker-b "}
    return given | {"kvConfigPath": str(home / "kv.json"), "configStorePath": str(home / "n.properties")} | others


def control(file: Path, **others: str) -> AccessControl:
    settings = load_namesrv_config(None, overrides(file, **others), {}, machine=Machine(1, "h", lambda: ""))
    return AccessControl(settings, Served())


def ask(
    access: AccessControl,
    code: int,
    account: str | None,
    *,
    secret: str = SECRET,
    host: str = "10.0.0.1",
    body: bytes = b"",
) -> str:
    """The remark of the answer; empty: it was served."""
    request = RemotingCommand.request(code, body=body, ext_fields={"topic": "orders"})
    if account is not None:
        sign(request, Credentials(account, secret))
    channel = FakeChannel(1)
    channel.peer = Peer(host, 50_000)
    response = trio.run(access.process, request, channel)
    assert isinstance(response, RemotingCommand) and (response.code == 1) == bool(response.remark)
    return (response.remark or "").removeprefix(EXCEPTION)


REGISTER, ROUTE, WIPE = (
    RequestCode.REGISTER_BROKER,
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER,
)


def test_accounts_may_what_their_roles_may(file: Path) -> None:
    access = control(file)
    assert [ask(access, REGISTER, account) for account in ("broker-a", "operator")] == ["", ""]
    assert [ask(access, ROUTE, account) for account in ("publisher", "operator")] == ["", ""]
    role = "Need admin permission for request code={}, but accessKey={} is not"
    assert ask(access, REGISTER, "publisher") == role.format(103, "publisher")
    assert ask(access, WIPE, "broker-a") == role.format(205, "broker-a")
    assert ask(access, ROUTE, "broker-a") == "No default permission for topic:orders"
    assert ask(access, REGISTER, None) == "No accessKey is configured"
    assert ask(access, REGISTER, "nobody-1") == "No acl config for nobody-1"
    assert ask(access, REGISTER, "broker-a", secret="wrong-secret") == "Check signature failed for accessKey=broker-a"
    assert ask(access, REGISTER, None, host="10.9.9.1") == ""
    found = access.statistics()
    assert found.refused == {"role": 2, "resource": 1, "no_access_key": 1, "unknown_access_key": 1, "signature": 1}
    assert (found.accounts, found.reload_failures, found.failing_files) == (3, 0, 0)


def test_with_the_holes_of_the_reference_any_account_registers(file: Path) -> None:
    access = control(file, aclStrict="false")
    assert ask(access, REGISTER, "publisher") == ""
    assert ask(access, REGISTER, "publisher", secret="wrong-secret") != ""


def test_a_large_body_is_hashed_in_a_thread(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def signed(request: RemotingCommand, secret: str) -> bool:
        threads.append(threading.current_thread() is threading.main_thread())
        return True

    monkeypatch.setattr("rocketpy.acl.validator.is_signed", signed)
    access = control(file)
    assert ask(access, REGISTER, "broker-a", body=bytes(LARGE_BYTES)) == ""
    assert ask(access, REGISTER, "broker-a", body=bytes(LARGE_BYTES + 1)) == ""
    assert threads == [True, False]


def test_changed_accounts_take_effect_and_bad_ones_do_not(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    access = control(file)
    poll = access.duty().run
    write(file, ACCOUNTS.replace("broker-a", "broker-b"))
    trio.run(poll)
    assert ask(access, REGISTER, "broker-b") == ""
    assert ask(access, REGISTER, "broker-a") == "No acl config for broker-a"
    write(file, "accounts: [")
    trio.run(poll)
    assert ask(access, REGISTER, "broker-b") == ""
    found = access.statistics()
    assert (found.accounts, found.reload_failures, found.failing_files) == (3, 1, 1)
    assert "accounts are kept as they were" in caplog.text and SECRET not in caplog.text
    write(file, ACCOUNTS)
    trio.run(poll)
    assert ask(access, REGISTER, "broker-a") == ""
    assert access.statistics().failing_files == 0


def test_a_server_with_bad_files_does_not_start(file: Path) -> None:
    write(file, "accounts: [{accessKey: short}]")
    with pytest.raises(ConfigError, match=r"plain_acl\.yml:1: "):
        server(file)


def test_a_server_without_a_home_does_not_start(file: Path) -> None:
    with pytest.raises(ConfigError, match="aclEnable: true needs rocketmqHome"):
        server(file, rocketmqHome="")


def server(file: Path, **others: str) -> NameServer:
    settings = load_namesrv_config(None, overrides(file, **others), {}, machine=Machine(1, "h", lambda: ""))
    return NameServer(settings)


def test_a_server_has_it_if_it_is_on(file: Path) -> None:
    assert server(file, aclEnable="false").statistics().access is None
    on = server(file)
    found = on.statistics().access
    assert found is not None and found.accounts == 3
    assert [duty.interval_s for duty in on.duties() if "accounts" in duty.name] == [5.0]


def test_a_worker_that_is_forked_later_has_the_accounts_of_the_moment(file: Path) -> None:
    """The files were read before the fork, and a restart comes any time later."""
    access = control(file)
    write(file, ACCOUNTS.replace("broker-a", "broker-b"))
    access.refresh()
    assert ask(access, REGISTER, "broker-b") == ""
    write(file, "accounts: [")
    with pytest.raises(ConfigError):  # what was read at the first start may be revoked since
        access.refresh()


def test_a_refreshed_server_has_refreshed_accounts(file: Path) -> None:
    found = server(file)
    write(file, "accounts: []")
    found.refresh()
    access = found.statistics().access
    assert access is not None and access.accounts == 0
