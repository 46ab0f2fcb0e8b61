"""Commands about accounts against a broker of rocketpy: the official mqadmin 4.9.7 and ours print the same, and what
they change counts for the next request."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import RequestCode
from rocketpy.remoting.command import RemotingCommand
from tests.support.accounts import OPERATOR, SECRET, signed, write_accounts, write_credentials
from tests.support.broker import RunningBroker, running_broker
from tests.support.wire import Wire, send_request

from .admin_tools import Printed, python_tool
from .java_broker import write_logback
from .mqadmin import NewMqAdmin

NEW, NEW_SECRET, TOPIC = "new-account", "secret-of-it", "orders"


@attrs.frozen
class Guarded:
    """A broker with access control, its home, and both tools with the account of an operator."""

    broker: RunningBroker
    home: Path
    java: NewMqAdmin

    @property
    def file(self) -> str:
        return str(self.home / "conf" / "plain_acl.yml")

    def ours(self, *words: str, succeeds: bool = True) -> Printed:
        printed = python_tool([words[0], "-n", self.broker.namesrv, *words[1:]])
        assert printed.succeeded == succeeds, printed
        return printed

    def by(self, tool: str, *words: str) -> str:
        """Run a command that succeeds. Returns: the printed words, without times and without the account that was sent,
        which Java prints as the address of an object."""
        output = self.java(self.broker, *words) if tool == "java" else self.ours(*words).output
        varying = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|(org\.[\w.]+\.)?PlainAccessConfig ?(@\w+|\[.*\])"
        return re.sub(varying, "#", " ".join(output.split()))

    def send(self, account: str = NEW, secret: str = NEW_SECRET) -> str:
        """Send a message. Returns: the remark of a refusal; empty: it is stored."""
        with Wire.open(self.broker.port) as wire:
            answer = wire.ask(signed(send_request(TOPIC, b"body"), account, secret))
            return answer.remark or ""


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    home = tmp_path / "home"
    settings = write_accounts(home) | write_credentials(tmp_path)
    for tools in (home, tmp_path / "mqadmin"):
        (tools / "conf").mkdir(parents=True, exist_ok=True)
        write_logback(tools)
        (tools / "conf" / "tools.yml").write_text(f"accessKey: {OPERATOR}\nsecretKey: {SECRET}\n")
    monkeypatch.setenv("ROCKETMQ_HOME", str(home))
    with running_broker(settings) as broker:
        yield Guarded(broker, home, NewMqAdmin(tmp_path / "mqadmin"))


def test_both_tools_administer_accounts(guarded: Guarded) -> None:
    """Each change is in effect in every process when the command has ended."""
    address, cluster = guarded.broker.address, "DefaultCluster"
    guarded.ours("updateTopic", "-b", address, "-t", TOPIC)
    guarded.ours("updateGlobalWhiteAddr", "-b", address, "-g", "10.9.9.9")
    printed: dict[str, list[str]] = {}
    for tool in ("java", "ours"):
        said = printed[tool] = []
        assert guarded.send() == f"org.apache.rocketmq.acl.common.AclException: No acl config for {NEW}"
        account = ("-a", NEW, "-s", NEW_SECRET)
        said.append(guarded.by(tool, "updateAclConfig", "-b", address, *account, "-t", f"{TOPIC}=PUB"))
        assert guarded.send() == ""
        said.append(guarded.by(tool, "updateAclConfig", "-c", cluster, *account, "-t", f"{TOPIC}=SUB"))
        assert guarded.send().endswith(f"No default permission for topic:{TOPIC}")
        said.append(guarded.by(tool, "getAccessConfigSubCommand", "-b", address))
        said.append(guarded.by(tool, "updateGlobalWhiteAddr", "-b", address, "-g", "127.0.0.*", "-p", guarded.file))
        assert guarded.send(secret="of-somebody") == ""
        said.append(guarded.by(tool, "updateGlobalWhiteAddr", "-c", cluster, "-g", "10.9.9.9"))
        assert guarded.send(secret="of-somebody").endswith(f"Check signature failed for accessKey={NEW}")
        said.append(guarded.by(tool, "deleteAclConfig", "-c", cluster, "-a", NEW))
        assert guarded.send().endswith(f"No acl config for {NEW}")
        guarded.by(tool, "clusterAclConfigVersion", "-b", address)
    assert printed["java"] == printed["ours"]
    versions = ("clusterAclConfigVersion", "-c", cluster)
    assert guarded.by("java", *versions) == guarded.by("ours", *versions)


def test_failures_are_told_with_the_codes_of_the_reference(guarded: Guarded) -> None:
    address = guarded.broker.address
    failed = guarded.ours("deleteAclConfig", "-b", address, "-a", "nobody-1", succeeds=False)
    assert "The accesskey[nobody-1] corresponding to accessConfig has been deleted failed." in failed.errors
    short = guarded.ours("updateAclConfig", "-b", address, "-a", "short", "-s", NEW_SECRET, succeeds=False)
    assert "209" in short.errors and NEW_SECRET not in short.errors
    other = ("-g", "10.9.9.9", "-p", "/etc/passwd")
    assert "211" in guarded.ours("updateGlobalWhiteAddr", "-b", address, *other, succeeds=False).errors
    with Wire.open(guarded.broker.port) as wire:
        answer = wire.ask(
            signed(RemotingCommand.request(RequestCode.DELETE_ACL_CONFIG, ext_fields={"accessKey": "no"}))
        )
        assert answer.code == 210
