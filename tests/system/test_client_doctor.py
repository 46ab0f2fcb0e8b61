"""`rocketpy doctor` from a client's side: servers broken on purpose, one way each, and the remedies."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy import aio
from rocketpy.admin.admin import Admin
from rocketpy.cli.client_checks import Question, client_findings
from rocketpy.cli.findings import Finding
from rocketpy.client import Credentials, Message, ProducerOptions, PushOptions, TlsOptions
from rocketpy.client.sync import Producer, PushConsumer
from rocketpy.codes import HIGHER_VERSION, MQVersion
from rocketpy.remoting.bodies.group import SubscriptionGroupConfig
from tests.support import preloaded
from tests.support.accounts import ACCOUNTS, OPERATOR, SECRET, write_accounts
from tests.support.broker import RunningBroker, free_ports, running_broker
from tests.support.certificates import Authority
from tests.support.ha.clocks import MISSING as CLOCKS_MISSING
from tests.support.ha.clocks import TurnedClock, built_library, compiler
from tests.support.pair import LoneBroker, NameServer
from tests.support.routes import topic
from tests.support.waiting import wait_until

BROKER = {"mappedFileSizeCommitLog": "1048576", "maxMessageSize": "65536", "autoCreateTopicEnable": "false"}
READ_ONLY, WRITE_ONLY, BOTH = 4, 2, 6


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker that creates no topics; it has Orders, Shop%Bills, Closed (read only) and Silent (write only)."""
    with running_broker(BROKER) as running:

        async def create() -> None:
            async with Admin(name_servers=running.namesrv) as admin:
                for name, perm in (
                    ("Orders", BOTH),
                    ("Shop%Bills", BOTH),
                    ("Closed", READ_ONLY),
                    ("Silent", WRITE_ONLY),
                ):
                    await admin.create_topic(running.address, topic(name, perm=perm))

        aio.run(create)
        yield running


def looked(namesrv: str, question: Question | None = None, **settings: Any) -> list[Finding]:
    """The findings of a client."""

    async def look() -> list[Finding]:
        async with Admin(name_servers=namesrv, **settings) as admin:
            return await client_findings(admin, question or Question())

    found: list[Finding] = aio.run(look)
    return found


def fatal(findings: list[Finding]) -> list[tuple[str, str, str]]:
    return [(finding.subject, finding.found, finding.remedy) for finding in findings if finding.is_fatal]


def only(findings: list[Finding]) -> tuple[str, str, str]:
    [found] = fatal(findings)
    return found


def doctor(*words: str, **environ: str) -> tuple[int, str]:
    """Exit status and report of the command. The table is so wide that it wraps nothing."""
    given = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"}
    done = preloaded.run([*preloaded.COMMAND, "doctor", *words], timeout=60, env=given | {"COLUMNS": "4000"} | environ)
    return done.returncode, " ".join(done.stdout.split())


def test_all_is_well(broker: RunningBroker) -> None:
    status, report = doctor("--client", "-t", "Orders", "--cluster", "DefaultCluster", NAMESRV_ADDR=broker.namesrv)
    assert status == 0, report
    assert "brokers known: 1" in report and f"reached at {broker.address}; version V4_9_8" in report
    assert "topic Orders │ on " in report and "open files" in report


def test_no_name_server(broker: RunningBroker) -> None:
    """None is given; one is away, and only another answers; none answers."""
    status, report = doctor("--client")
    assert status == 1 and "set NAMESRV_ADDR, or give -n host:port;host:port" in report
    away = f"127.0.0.1:{free_ports()[1]}"
    status, report = doctor("-n", away)
    assert (
        status == 1 and f"name server {away}" in report and "start it, open its port, or correct NAMESRV_ADDR" in report
    )
    findings = looked(f"{away};{broker.namesrv}")
    assert fatal(findings) == [] and [each.subject for each in findings if each.remedy] == [f"name server {away}"]


def test_no_route(broker: RunningBroker) -> None:
    """Fault: Clients say "no route info" for a missing topic, another namespace, a misspelt name, another cluster."""
    subject, found, remedy = only(looked(broker.namesrv, Question(topic="Payments")))
    assert subject == "topic Payments" and "no broker creates topics (autoCreateTopicEnable=false)" in found
    assert remedy == "mqadmin updateTopic -c CLUSTER -t Payments"
    _, found, remedy = only(looked(broker.namesrv, Question(topic="Order")))
    assert found == "missing; there is Orders" and remedy.startswith("correct the name, or mqadmin updateTopic")
    _, found, remedy = only(looked(broker.namesrv, Question(topic="Bills")))
    assert found == "missing; there is Shop%Bills" and remedy.startswith("correct its namespace")
    absent, elsewhere = fatal(looked(broker.namesrv, Question(topic="Orders", cluster="East")))
    assert absent[1] == "not there; clusters are: DefaultCluster" and "brokerClusterName" in absent[2]
    assert elsewhere[1] == "not in cluster East, but in DefaultCluster"


def test_permissions(broker: RunningBroker) -> None:
    _, found, remedy = only(looked(broker.namesrv, Question(topic="Closed")))
    assert found.startswith("cannot be written to on ") and "perm 4" in found and "updateTopicPerm -p 6" in remedy
    _, found, _ = only(looked(broker.namesrv, Question(topic="Silent")))
    assert found.startswith("cannot be read on ") and "perm 2" in found


def test_members_and_subscriptions_of_a_group(broker: RunningBroker) -> None:
    question = Question(topic="Orders", group="billing")
    assert only(looked(broker.namesrv, question))[1:] == (
        "no member is connected",
        "start one, or correct the name of the group",
    )
    options = PushOptions(name_servers=broker.namesrv)
    with ExitStack() as members:
        members.enter_context(PushConsumer("billing", {"Orders": "paid"}, print, options=options))
        wait_until(lambda: not fatal(looked(broker.namesrv, question)), "the member is known")
        assert "PYTHON V4_9_8" in " ".join(each.found for each in looked(broker.namesrv, question))
        _, found, remedy = only(looked(broker.namesrv, Question(topic="Shop%Bills", group="billing")))
        assert found == "subscribes to Orders, not to Shop%Bills" and remedy == "correct the subscription"
        members.enter_context(PushConsumer("billing", {"Orders": "*"}, print, options=options))
        wait_until(lambda: bool(fatal(looked(broker.namesrv, question))), "both subscriptions are known")
        _, found, remedy = only(looked(broker.namesrv, question))
        assert (
            found.startswith("members subscribe differently: ") and "paid" in found and "groups of their own" in remedy
        )


def test_a_group_that_may_not_consume(broker: RunningBroker) -> None:
    async def forbid() -> None:
        async with Admin(name_servers=broker.namesrv) as admin:
            config = SubscriptionGroupConfig(group_name="forbidden", consume_enable=False)
            await admin.create_group(broker.address, config)

    aio.run(forbid)
    forbidden, offline = fatal(looked(broker.namesrv, Question(group="forbidden")))
    assert forbidden[1] == f"{broker.address} lets it consume nothing (consumeEnable)"
    assert forbidden[2] == f"mqadmin updateSubGroup -b {broker.address} -g forbidden -s true"
    assert offline[1] == "no member is connected"


@attrs.define(eq=False)
class ChangedBroker(RunningBroker):
    """A broker with other words before its command, which starts an interpreter of its own."""

    prefix: list[str] = attrs.field(factory=list, kw_only=True)

    def command(self) -> list[str]:
        return [*self.prefix, *super().command()]


@contextlib.contextmanager
def changed_broker(directory: Path, prefix: list[str]) -> Iterator[RunningBroker]:
    broker = ChangedBroker(directory / "store", *free_ports(), directory / "log", BROKER, prefix=prefix)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill_all()


@pytest.mark.skipif(compiler() is None, reason=CLOCKS_MISSING)
def test_a_broker_whose_clock_is_off(tmp_path: Path) -> None:
    """Its processes see a wall clock that somebody sets while they run."""
    clock = TurnedClock(built_library(tmp_path), tmp_path / "clock")
    with changed_broker(tmp_path, clock.prefix) as broker:
        assert not [each for each in looked(broker.namesrv) if "clock" in each.found]
        for step_s, text in ((3600, "ahead of"), (-7200, "behind")):
            clock.step(wall_s=step_s)
            [finding] = [each for each in looked(broker.namesrv) if "clock" in each.found]
            assert finding.found.endswith(f"s {text} this host's") and "NTP" in finding.remedy and not finding.is_fatal
            assert abs(int(finding.found.split()[3]) - 3600) < 60, finding.found
    clock.close()


@pytest.mark.parametrize(
    ("version", "text", "remedy"),
    [
        (MQVersion.V3_4_9, "its version V3_4_9 is older than 4.1", "upgrade the broker"),
        (HIGHER_VERSION + 1, "its version number 613 is newer", "upgrade the client"),
    ],
)
def test_a_broker_of_another_age(tmp_path: Path, version: int, text: str, remedy: str) -> None:
    """A broker whose processes say that they are of that version."""
    patch = f"import rocketpy.codes\nrocketpy.codes.OUR_VERSION = {int(version)}\n"
    (tmp_path / "sitecustomize.py").write_text(patch)
    with changed_broker(tmp_path, ["env", f"PYTHONPATH={tmp_path}"]) as broker:
        [finding] = [each for each in looked(broker.namesrv) if "its version" in each.found]
        assert text in finding.found and remedy in finding.remedy and not finding.is_fatal


@pytest.mark.parametrize(
    ("ratio", "is_fatal", "text"), [("0.8", False, "deleted before"), ("0.95", True, "sends are refused")]
)
def test_a_disk_that_is_nearly_full(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, ratio: str, is_fatal: bool, text: str
) -> None:
    """The broker's figure is replaced; tests/fault/test_full_disk.py fills a disk."""
    runtime_info = Admin.runtime_info

    async def nearly_full(admin: Admin, address: str) -> dict[str, str]:
        return await runtime_info(admin, address) | {"commitLogDiskRatio": ratio}

    monkeypatch.setattr(Admin, "runtime_info", nearly_full)
    [finding] = [each for each in looked(broker.namesrv) if "disk" in each.found]
    assert finding.is_fatal == is_fatal and text in finding.found and "fileReservedTime" in finding.remedy


def test_an_address_that_this_host_cannot_reach(tmp_path: Path) -> None:
    """A broker behind NAT, or in a container, that advertises its inner address; and one that no name server knows."""
    port, namesrv_port = free_ports()
    namesrv = NameServer(tmp_path / "namesrv", 0, namesrv_port, tmp_path / "namesrv.log", {})
    inner = LoneBroker(tmp_path / "b", port, namesrv_port, tmp_path / "b.log", BROKER | {"brokerIP1": "127.0.0.2"})
    try:
        namesrv.start()
        subject, found, remedy = only(looked(namesrv.namesrv))
        assert (subject, found) == ("brokers", "none is registered") and "namesrvAddr" in remedy
        inner.start()
        wait_until(lambda: "brokers" not in [each[0] for each in fatal(looked(namesrv.namesrv))], "it is registered")
        _, found, remedy = only(looked(namesrv.namesrv))
        assert f"127.0.0.2:{port}" in found and "advertisedAddresses, or brokerIP1; Docker, NAT" in remedy
        assert f"open its ports {port} and {port} - 2" in remedy
    finally:
        for process in (inner, namesrv):
            process.kill_all()


def test_certificates_and_accounts(tmp_path: Path) -> None:
    """A name server that serves TLS alone, and only to accounts."""
    authority, other = Authority(tmp_path / "certificates"), Authority(tmp_path / "others")
    served = authority.issue().settings() | {"tls.server.mode": "enforcing", "tls.config.file": "/dev/null"}
    accounts = write_accounts(
        tmp_path, f"{ACCOUNTS}- {{accessKey: customer, secretKey: {SECRET}, topicPerms: [Orders=PUB]}}\n"
    )
    _, port = free_ports()
    namesrv = NameServer(tmp_path / "namesrv", 0, port, tmp_path / "namesrv.log", served | accounts)
    trusting, signed = TlsOptions(ca_file=authority.ca_file), Credentials(OPERATOR, SECRET)
    try:
        namesrv.start()

        def remedy(**settings: Any) -> str:
            return only(looked(namesrv.namesrv, **settings))[2]

        assert remedy(credentials=signed).startswith("use --tls if it serves TLS")
        assert remedy(credentials=signed, tls=TlsOptions(ca_file=other.ca_file)).startswith("trust its authority")
        assert remedy(tls=trusting).startswith("correct both keys")
        assert remedy(tls=trusting, credentials=Credentials(OPERATOR, "wrong-secret")).startswith("correct both keys")
        assert remedy(tls=trusting, credentials=signed).startswith("start a broker with these name servers")
        told = looked(namesrv.namesrv, tls=trusting, credentials=Credentials("customer", SECRET))
        assert "administrators" in told[0].found and fatal(told) == []
    finally:
        namesrv.kill_all()


def test_a_topic_that_the_first_send_creates() -> None:
    with running_broker(BROKER | {"autoCreateTopicEnable": "true"}) as broker:
        findings = looked(broker.namesrv, Question(topic="Orders"))
        assert fatal(findings) == [] and "the first send creates it" in findings[-1].found
        with Producer("shop", ProducerOptions(name_servers=broker.namesrv)) as producer:
            producer.send(Message("Orders", b"first"))
        assert "on " in looked(broker.namesrv, Question(topic="Orders"))[-1].found
