"""Attempts to use a name server with accounts without one, or with that of another role. The server is a process of its
own; requests are sent by bare sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.acl.accounts import Account
from rocketpy.acl.permissions import PUB, SUB, group_resource
from rocketpy.acl.reference import GROUP, TOPIC, sample
from rocketpy.acl.resources import SIGNATURE_ONLY, STRICT, Access
from rocketpy.acl.validator import EXCEPTION
from rocketpy.codes import RequestCode
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.frame import SerializeType
from tests.support import preloaded
from tests.support.accounts import SECRET, signed, write_accounts, write_credentials
from tests.support.broker import free_ports
from tests.support.pair import LoneBroker, NameServer
from tests.support.waiting import metrics_page
from tests.support.wire import Wire, until

ACCOUNTS = {
    "publisher": Account("publisher", SECRET, permissions={TOPIC: PUB}),
    "subscriber": Account("subscriber", SECRET, permissions={TOPIC: SUB, group_resource(GROUP): SUB}),
    "broker-a": Account("broker-a", SECRET),
    "operator": Account("operator", SECRET, is_admin=True),
}
FILE = f"""
accounts:
- {{accessKey: publisher, secretKey: {SECRET}, topicPerms: [{TOPIC}=PUB]}}
- {{accessKey: subscriber, secretKey: {SECRET}, topicPerms: [{TOPIC}=SUB], groupPerms: [{GROUP}=SUB]}}
- {{accessKey: broker-a, secretKey: {SECRET}}}
- {{accessKey: operator, secretKey: {SECRET}, admin: true}}
"""
UNKNOWN_CODE = 7777


@attrs.frozen
class Served:
    server: NameServer
    home: Path
    metrics_port: int

    def metrics(self) -> str:
        return metrics_page(self.metrics_port)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    metrics_port, _ = free_ports()
    settings = write_accounts(tmp_path, FILE) | {"metricsPort": str(metrics_port)}
    _, port = free_ports()
    server = NameServer(tmp_path / "namesrv", 0, port, tmp_path / "namesrv.log", settings)
    try:
        server.start()
        yield Served(server, tmp_path, metrics_port)
    finally:
        server.kill_all()


def request_by(code: int, account: str, secret: str = SECRET) -> RemotingCommand:
    return signed(sample(code), account, secret)


def refusal(wire: Wire, request: RemotingCommand) -> str:
    """The text with which access control refuses; empty: the request was served, or refused by others."""
    answer = wire.ask(request)
    is_refused = answer.code == 1 and (answer.remark or "").startswith(EXCEPTION)
    return (answer.remark or "").removeprefix(EXCEPTION) if is_refused else ""


def is_allowed(code: int, account: Account) -> bool:
    """As docs/run/access-control-codes.md says."""
    rule = STRICT.get(code, SIGNATURE_ONLY)
    if account.is_admin:
        return True
    if rule.access is Access.ADMIN or (rule.access is Access.BROKER and account.access_key != "broker-a"):
        return False
    needs = rule.needs(sample(code))
    return all(account.may_somewhere(needed) if name is None else account.may(name, needed) for name, needed in needs)


@pytest.mark.parametrize("serialize_type", list(SerializeType))
def test_every_code_by_every_account(served: Served, serialize_type: SerializeType) -> None:
    """Neither header form lets a request in that has no signature of an account with the role or permission."""
    with Wire.open(served.server.namesrv_port, serialize_type) as wire:
        for code in (*RequestCode, UNKNOWN_CODE):
            assert refusal(wire, sample(code)) == "No accessKey is configured", code
            assert refusal(wire, request_by(code, "nobody-1")) == "No acl config for nobody-1", code
            assert refusal(wire, request_by(code, "operator", "another")) == (
                "Check signature failed for accessKey=operator"
            ), code
            stolen = request_by(code, "publisher")
            stolen.add_ext_field("AccessKey", "operator")
            assert refusal(wire, stolen).startswith("Check signature failed"), code
            for name, account in ACCOUNTS.items():
                found = refusal(wire, request_by(code, name))
                assert (found == "") is is_allowed(code, account), (code, name, found)
    assert 'rocketpy_namesrv_access_refused_total{reason="role"}' in served.metrics()
    assert "rocketpy_namesrv_access_accounts 4.0" in served.metrics()
    assert served.server.text().count("access control refused") < 20, "lines are limited"
    assert SECRET not in served.server.text() and "Traceback" not in served.server.text()
    assert served.server.stop() == 0


def is_registered(served: Served, name: str) -> bool:
    with Wire.open(served.server.namesrv_port) as wire:
        answer = wire.ask(request_by(RequestCode.GET_BROKER_CLUSTER_INFO, "operator"))
        return f'"{name}"'.encode() in (answer.body or b"")


def broker(served: Served, directory: Path, settings: dict[str, str]) -> LoneBroker:
    directory.mkdir(exist_ok=True)
    port, _ = free_ports()
    small = {"mappedFileSizeCommitLog": str(8 << 20)}
    own = {"brokerName": directory.name, "registerNameServerPeriod": "10000"} | small | settings
    return LoneBroker(directory / "store", port, served.server.namesrv_port, directory / "log", own)


@pytest.mark.long
def test_brokers_register_by_their_own_account(served: Served, tmp_path: Path) -> None:
    """A broker without an account, with a wrong secret or with that of a client serves, but no client finds it. The
    start waits for the answers to its first registration."""
    others = {
        "none": {},
        "wrong": write_credentials(tmp_path, "broker-a", "wrong-secret"),
        "client": write_credentials(tmp_path, "publisher"),
    }
    own = broker(served, tmp_path / "own", write_credentials(tmp_path, "broker-a"))
    running = [broker(served, tmp_path / name, settings) for name, settings in others.items()]
    try:
        for one in (*running, own):
            one.start()
        until(lambda: is_registered(served, "own"), "the registration")
        for one in running:
            assert not is_registered(served, one.settings["brokerName"])
            assert EXCEPTION in one.text(), "its log says why"
        changed = tmp_path / "broker-a-wrong-secret.yml"
        changed.write_text(f"accessKey: broker-a\nsecretKey: {SECRET}\n")
        until(lambda: is_registered(served, "wrong"), "the registration with the changed file")
        assert own.stop() == 0
        assert not is_registered(served, "own"), "it has left"
        for one in (served.server, own, *running):
            assert "secret-of-all" not in one.text() and "wrong-secret:" not in one.text()
    finally:
        for one in (*running, own):
            one.kill_all()


@pytest.mark.long
def test_accounts_are_changed_while_it_runs(served: Served) -> None:
    with Wire.open(served.server.namesrv_port) as wire:
        write_accounts(served.home, FILE.replace("operator", "successor"))
        question = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        until(lambda: not refusal(wire, request_by(question, "successor")), "the new account")
        assert refusal(wire, request_by(question, "operator")) == "No acl config for operator"
        write_accounts(served.home, "accounts: [")
        until(lambda: "rocketpy_namesrv_access_failing_files 1.0" in served.metrics(), "the bad file")
        assert not refusal(wire, request_by(question, "successor"))
        assert "rocketpy_namesrv_access_reload_failures_total 1.0" in served.metrics()


def test_a_bad_file_ends_the_start_with_one_line(served: Served) -> None:
    assert served.server.stop() == 0
    write_accounts(served.home, f"accounts:\n- accessKey: operator\n  secretKey: [{SECRET}]\n")
    ended = preloaded.run(served.server.command(), timeout=60)
    said = ended.stderr.strip()
    assert (ended.returncode, ended.stdout) == (1, "") and SECRET not in said
    assert "\n" not in said and "plain_acl.yml:3: secretKey: expected a text" in said
