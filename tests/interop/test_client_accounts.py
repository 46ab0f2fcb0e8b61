"""Official clients with accounts: what is allowed is done, and what is denied is told in the words of the reference.

Our servers serve TLS beside plain connections: the Java client 5.3.3 calls by TLS, 4.9.8 and Go are plain (Go 2.1.2
has no TLS). One name server has accounts; the other one has none, so that clients with a wrong key reach the broker.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from rocketpy.acl.validator import EXCEPTION
from rocketpy.codes import RequestCode
from rocketpy.remoting.command import RemotingCommand
from tests.support.accounts import BROKER, OPERATOR, SECRET, signed, write_accounts, write_credentials
from tests.support.broker import RunningBroker, free_ports
from tests.support.certificates import Authority
from tests.support.kills import wait_until_gone
from tests.support.pair import LoneBroker, NameServer
from tests.support.wire import Wire

from .brokers import AnyBroker, asking, wait_until
from .java_broker import running_java_broker, write_logback
from .programs import Launcher, Program, java_flags

CLIENTS = ("java-4.9.8", "java-5.3.3", "go")
BY_TLS = "java-5.3.3"
LOAD, REPLIES = "load", "DefaultCluster_REPLY_TOPIC"
OPERATIONS = ("send", "batch", "transaction", "request", "pull")
VICTIMS = ("tls 0", "tls 1", "codec 0", "tls 0")
ACKNOWLEDGED_BETWEEN = 20  # messages of each sender, between two deaths


def topics_of(client: str) -> tuple[str, str]:
    """The topic that accounts share, and that of their requests."""
    stem = re.sub(r"\W", "_", client)
    return f"orders_{stem}", f"questions_{stem}"


def key_of(name: str) -> str:
    return f"key-of-{name}"


def accounts_file() -> str:
    """Permissions for topics of each client by account; all but `outsider` may use groups."""
    accounts: list[dict[str, object]] = [
        {"accessKey": BROKER, "secretKey": SECRET},
        {"accessKey": OPERATOR, "secretKey": SECRET, "admin": True},
    ]
    for name, topic_word, requests_word in (
        ("allowed", "PUB|SUB", "PUB|SUB"),
        ("reader", "SUB", "SUB"),
        ("writer", "PUB", "SUB"),
        ("outsider", "PUB|SUB", "SUB"),
    ):
        words = [f"{REPLIES}={topic_word}", f"{LOAD}={topic_word}"]
        for topic, requests in map(topics_of, CLIENTS):
            words += [f"{topic}={topic_word}", f"{requests}={requests_word}"]
        group_word = "DENY" if name == "outsider" else "SUB"
        one = {"accessKey": key_of(name), "secretKey": SECRET, "topicPerms": words, "defaultGroupPerm": group_word}
        accounts.append(one)
    return json.dumps({"accounts": accounts})  # which is YAML


@attrs.define
class Registered(LoneBroker):
    """A broker with a second name server."""

    second: str = ""

    @property
    def namesrv(self) -> str:
        return f"127.0.0.1:{self.namesrv_port};{self.second}"


@attrs.frozen
class Guarded:
    """A broker with accounts, an open name server, and one with accounts as well (None: of the reference)."""

    broker: AnyBroker
    open_namesrv: str
    namesrv: str | None = None
    flags: tuple[str, ...] = ()  # by which Java calls with TLS

    def accounts(self) -> list[tuple[str, str, str, str]]:
        """List name, key, secret and name server of each client that makes attempts."""
        known = [
            (name, key_of(name), SECRET, self.open_namesrv) for name in ("allowed", "reader", "writer", "outsider")
        ]
        known += [
            ("forged", key_of("allowed"), "another-secret", self.open_namesrv),
            ("unknown", key_of("nobody"), SECRET, self.open_namesrv),
            ("unsigned", "", "", self.open_namesrv),
        ]
        if self.namesrv is not None:
            known.append(("inside", key_of("allowed"), SECRET, self.namesrv))
            known.append(("outside", key_of("allowed"), "another-secret", self.namesrv))
        return known


@pytest.fixture(scope="module")
def guarded(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("guarded")
    with (of_the_reference if target == "java" else of_ours)(directory) as running:
        for topic in {LOAD, *(topic for client in CLIENTS for topic in topics_of(client))}:
            create_topic(running.broker, topic)
        yield running


@contextlib.contextmanager
def of_the_reference(directory: Path) -> Iterator[Guarded]:
    write_accounts(directory, accounts_file())
    write_logback(directory)
    with running_java_broker({"aclEnable": "true"}, flags=[f"-Drocketmq.home.dir={directory}"]) as broker:
        yield Guarded(broker, broker.namesrv)


@contextlib.contextmanager
def of_ours(directory: Path) -> Iterator[Guarded]:
    authority = Authority(directory / "certificates")
    tls = {"tls.config.file": "/dev/null", "tls.server.mode": "permissive"}
    accounts = write_accounts(directory / "home", accounts_file())
    servers = {}
    for name, more in (("open", {}), ("guarded", accounts)):
        settings = tls | authority.issue().settings() | more
        servers[name] = NameServer(directory / name, 0, free_ports()[1], directory / f"{name}.log", settings)
    calls = {"useTLS": "true"} | authority.trusting() | write_credentials(directory)
    own = tls | authority.issue().settings() | calls | accounts | {"brokerName": "broker-a", "codecWorkers": "1"}
    own |= {"tlsWorkers": "2"}
    port, _ = free_ports()
    broker = Registered(directory / "broker", port, servers["open"].namesrv_port, directory / "broker.log", own)
    broker.second = servers["guarded"].namesrv
    with contextlib.ExitStack() as stack:
        for server in (*servers.values(), broker):
            stack.callback(server.kill_all)
            server.start()
        flags = java_flags(authority.trusting())
        yield Guarded(broker, servers["open"].namesrv, servers["guarded"].namesrv, tuple(flags))
        for server in (*servers.values(), broker):
            server.check_crashes()


def create_topic(broker: AnyBroker, topic: str) -> None:
    """One with one queue."""
    fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    with Wire.open(broker.port) as wire:
        answer = wire.ask(signed(RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=fields)))
        assert answer.code == 0, answer
    with asking(broker.namesrv_port) as namesrv:
        wait_until(lambda: namesrv.has_route(topic), f"a route of {topic}")


@pytest.fixture
def start(guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Program]]:
    """Starts a client, which calls by TLS if it is one that does."""
    launcher = Launcher(guarded.namesrv or guarded.open_namesrv, tmp_path)

    def begin(client: str, command: str, **arguments: object) -> Program:
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", " ".join(guarded.flags if client == BY_TLS else ()))
        return launcher.start(client, command, **arguments)

    yield begin
    launcher.close()


# --- what is allowed, and what is not ---------------------------------------------------------------------------------


def denied(client: str, target: str) -> dict[tuple[str, str], str]:
    """The refusal of the broker by account and operation; all others succeed."""
    topic, requests = topics_of(client)
    found = {("reader", operation): f"topic:{topic}" for operation in ("send", "batch", "transaction")}
    found |= {(name, "request"): f"topic:{requests}" for name in ("reader", "writer", "outsider")}
    found["reader", "reply"] = f"topic:{REPLIES}"
    found |= {("writer", "pull"): f"topic:{topic}", ("outsider", "pull"): f"group:{topic}_outsider_pulls"}
    texts = {key: f"No default permission for {resource}" for key, resource in found.items()}
    if target == "java":
        for operation in ("batch", "reply"):  # which have no rule there: docs/run/access-control-codes.md
            del texts["reader", operation]
    for name, text in (
        ("forged", f"Check signature failed for accessKey={key_of('allowed')}"),
        ("unknown", f"No acl config for {key_of('nobody')}"),
        ("unsigned", "No accessKey is configured"),
    ):
        texts |= {(name, operation): text for operation in OPERATIONS}
    return texts


def told(error: str) -> str:
    """The remark of the broker in the error of a client, without the class and line that the reference adds."""
    _, _, remark = error.partition(EXCEPTION)
    return re.sub(r", org\.apache\.[\w.]+\(\w+\.java:\d+\).*$", "", remark.strip(), flags=re.DOTALL)


@pytest.mark.parametrize("client", CLIENTS)
def test_what_accounts_may_do_and_what_is_told_to_others(
    guarded: Guarded, start: Callable[..., Program], target: str, client: str
) -> None:
    """Holds: trap, access control checks few codes."""
    topic, requests = topics_of(client)
    accounts = guarded.accounts()
    program = start(client, "attempts", topic=topic, requests=requests, accounts=",".join(map("/".join, accounts)))
    program.wait_ready()
    program.wait_until(
        lambda: any(one["operation"] == "reply" for one in program.of_kind("outcome") if one["account"] == "reader"),
        "a reply of the reader",
    )
    outcomes = {(one["account"], one["operation"]): one for one in program.of_kind("outcome")}
    assert outcomes.keys() >= set(itertools.product((name for name, *_ in accounts), OPERATIONS)), program.describe()
    wanted = denied(client, target)
    for (name, operation), outcome in outcomes.items():
        error, where = str(outcome.get("error", "")), f"{name} {operation}: {outcome}"
        if refusal := wanted.get((name, operation)):
            assert told(error) == refusal, where
            assert outcome.get("code", 1) == 1 and re.search(r"(?i)code: 1, |^org\.apache", error), where
        elif name == "outside" or (name, operation, client) == (
            "inside",
            "pull",
            "go",
        ):  # Go signs no question of pulls
            assert topic in error or requests in error or "Check signature failed" in error, f"no route: {where}"
        else:
            assert not error, where
    senders = ["allowed", "writer", "outsider", *(["inside"] if guarded.namesrv else [])]
    sent = {f"{name}-{what}" for name in senders for what in ("send", "batch-0", "batch-1", "transaction")}

    def received(name: str) -> set[str]:
        return {one["key"] for one in program.of_kind("received") if one["account"] == name}

    readers = {"allowed", "reader", *(["inside"] if guarded.namesrv else [])}
    for name in readers:
        program.wait_until(lambda name=name: sent <= received(name), f"all messages at {name}")
    refused_consumer = f"No default permission for group:{topic}_outsider"
    wait_until(lambda: refused_consumer in log_of(program), f"the log of {client} says {refused_consumer}")
    assert {one["account"] for one in program.of_kind("received")} == readers
    assert {one["key"] for one in program.of_kind("failed")} <= {"outside"}, "a consumer without a route"
    program.leave()


def log_of(program: Program) -> str:
    """Go logs to standard error, Java to a file of its home."""
    home = program.errors.with_name(program.errors.name.replace("errors", "home").removesuffix(".log"))
    logs = [program.errors, *home.glob("logs/rocketmqlogs/*.log")]
    return "".join(path.read_text(errors="replace") for path in logs)


# --- workers that die -------------------------------------------------------------------------------------------------


def acknowledged(program: Program) -> set[str]:
    return {event["key"] for event in program.of_kind("sent") if event["status"] == "SEND_OK"}


@pytest.mark.one_try
def test_dying_workers_under_load(guarded: Guarded, start: Callable[..., Program]) -> None:
    """Plain connections notice nothing of the death of a TLS worker; clients by TLS connect again. Every acknowledged
    message reaches a consumer by TLS and a plain one.

    Holds: network, TLS of servers."""
    broker = guarded.broker
    if not isinstance(broker, RunningBroker):
        pytest.skip("one process; its death is not survived")
    account = {"accessKey": key_of("allowed"), "secretKey": SECRET, "topic": LOAD, "patience": 30_000}
    consumers = [start(client, "push", group=f"{LOAD}_{client[:2]}", **account) for client in (BY_TLS, "go")]
    senders = {
        client: start(client, "send", mode="stream", pause=10, prefix=client, group=f"{LOAD}_senders", **account)
        for client in (BY_TLS, "java-4.9.8", "go")
    }

    def wait_for_more() -> None:
        for sender in senders.values():
            wanted = len(acknowledged(sender)) + ACKNOWLEDGED_BETWEEN
            sender.wait_until(lambda sender=sender, wanted=wanted: len(acknowledged(sender)) >= wanted, "acknowledged")

    for victim in VICTIMS:
        wait_for_more()
        wait_until_gone(broker, victim, broker.kill_worker(victim))
    wait_for_more()
    for sender in senders.values():
        sender.leave()
    wanted = set[str]().union(*map(acknowledged, senders.values()))
    for consumer in consumers:
        consumer.wait_until(
            lambda consumer=consumer: wanted <= {event["key"] for event in consumer.messages}, "every message"
        )
        consumer.leave()
    failures = {client: sender.of_kind("failed") for client, sender in senders.items()}
    print({client: (len(acknowledged(senders[client])), len(failed)) for client, failed in failures.items()})
    assert not failures["go"] and not failures["java-4.9.8"], "a plain connection was disturbed"
