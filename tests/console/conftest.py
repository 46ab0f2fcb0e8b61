"""A cluster with two brokers, 10 000 topics and 2 000 groups, a console, and Chromium in front of it."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from rocketpy.client import Message, ReceivedMessage
from rocketpy.client.options import START_FIRST, ProducerOptions, PushOptions
from rocketpy.client.sync import Producer, PushConsumer
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.remoting.bodies.register import RegisterBrokerBody
from rocketpy.remoting.bodies.topic import TopicConfig, TopicConfigSerializeWrapper
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.namesrv import RegisterBrokerRequestHeader
from tests.support.broker import free_ports
from tests.support.large_cluster import group_name, topic_name, write_tables
from tests.support.pair import LoneBroker, NameServer
from tests.support.running_console import ACCOUNTS, RunningConsole, running_console
from tests.support.wire import Wire

webdriver = pytest.importorskip("selenium.webdriver", reason="make test-console installs selenium")

TOPICS, GROUPS = 10_000, 2_000
MARKUP = "<img src=x onerror=alert(1)><b>'&{{7*7}}"
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
SENDS_S = 0.02


@attrs.define
class Traffic:
    """A producer, a group that keeps up, one that does not, and one that fails; for as long as it is open."""

    name_servers: str
    count: int = 0
    last_id: str = ""
    _stack: contextlib.ExitStack = attrs.field(factory=contextlib.ExitStack)
    _ended: threading.Event = attrs.field(factory=threading.Event)

    def open(self) -> None:
        options = ProducerOptions(name_servers=self.name_servers, trace=True)
        producer = self._stack.enter_context(Producer("shop", options))
        for group, handler, retries in (
            (group_name(0), self._handle, -1),
            (group_name(1), self._slowly, -1),
            ("failing", self._fail, 0),
        ):
            consuming = PushOptions(
                name_servers=self.name_servers,
                start=START_FIRST,
                reconsume_times_max=retries,
                instance_name=f"{MARKUP} {group}",
                concurrency=1,
                trace=group == group_name(0),
            )
            topic = topic_name(1) if group == "failing" else topic_name(0)
            self._stack.enter_context(PushConsumer(group, {topic: "*"}, handler, options=consuming))
        thread = threading.Thread(target=self._send, args=(producer,))
        thread.start()
        self._stack.callback(thread.join)
        self._stack.callback(self._ended.set)

    def close(self) -> None:
        self._stack.close()

    def _send(self, producer: Producer) -> None:
        producer.send(Message(topic_name(1), b"cannot be handled", keys="failing-1"))
        while not self._ended.wait(SENDS_S):
            with contextlib.suppress(Exception):  # while a test has stopped the broker
                body = f"order {self.count} {MARKUP}".encode()
                properties = {"colour": MARKUP}
                sent = producer.send(Message(topic_name(0), body, keys="order-1", tags="paid", properties=properties))
                self.last_id, self.count = sent.msg_id, self.count + 1

    def _handle(self, message: ReceivedMessage) -> None:
        """Keep up."""

    def _slowly(self, message: ReceivedMessage) -> None:
        time.sleep(10 * SENDS_S)

    def _fail(self, message: ReceivedMessage) -> None:
        raise ValueError("a handler that fails")


@attrs.frozen
class Cluster:
    """Running processes. The second broker is also registered under a name with markup."""

    namesrv: NameServer
    broker: LoneBroker
    second: LoneBroker
    traffic: Traffic


@contextlib.contextmanager
def registered_with_markup(namesrv_port: int, address: str) -> Iterator[None]:
    """Register a broker whose name, cluster and topic hold markup, which those of the reference may have.

    An address has one broker, so it is spelled in another way than that of the broker that answers there.
    """
    topics = {MARKUP: TopicConfig(topic_name=MARKUP)}
    wrapper = TopicConfigSerializeWrapper(topic_config_table=topics)
    body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode()
    header = RegisterBrokerRequestHeader(
        broker_name=MARKUP, broker_addr=address, cluster_name=f"C {MARKUP}", broker_id=0
    )
    ended = threading.Event()

    def register() -> None:
        with Wire.open(namesrv_port) as wire:
            while not ended.is_set():
                answer = wire.ask(RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body))
                assert answer.code == ResponseCode.SUCCESS, answer.remark
                ended.wait(10)

    thread = threading.Thread(target=register)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    small = {"mappedFileSizeCommitLog": str(64 << 20), "maxHashSlotNum": "5000", "maxIndexNum": "20000"}
    with tempfile.TemporaryDirectory(prefix="rocketpy-console-") as name, contextlib.ExitStack() as stack:
        directory = Path(name)
        _, namesrv_port = free_ports()
        namesrv = NameServer(directory / "namesrv", 0, namesrv_port, directory / "namesrv.log", {})
        write_tables(directory / "a", TOPICS, GROUPS, consumed=0)
        brokers = [
            LoneBroker(directory / short, free_ports()[0], namesrv_port, directory / f"{short}.log", small | own)
            for short, own in (
                ("a", {"brokerName": "broker-a"}),
                ("b", {"brokerName": "broker-b"}),
            )
        ]
        for process in (namesrv, *brokers):
            stack.callback(process.kill_all)
            process.start()
        stack.enter_context(registered_with_markup(namesrv_port, f"localhost:{brokers[1].port}"))
        traffic = Traffic(f"127.0.0.1:{namesrv_port}")
        stack.callback(traffic.close)
        traffic.open()
        yield Cluster(namesrv, *brokers, traffic)


@pytest.fixture(scope="session")
def console(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """A console that anybody reads."""
    directory = tmp_path_factory.mktemp("console")
    alarms = directory / "alarms.toml"
    alarms.write_text(f'[[group]]\nname = "{group_name(1)}"\nbacklog = 20\nage_minutes = 60\n')
    with running_console(cluster.namesrv.namesrv, directory / "log", "--alarms", str(alarms)) as running:
        yield running


@pytest.fixture(scope="session")
def guarded(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """A console with a login, which allows changes."""
    directory = tmp_path_factory.mktemp("guarded")
    accounts = directory / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    arguments = ("--accounts", str(accounts), "--allow-changes")
    with running_console(cluster.namesrv.namesrv, directory / "log", *arguments) as running:
        yield running


@pytest.fixture(scope="session")
def chromium() -> Iterator[object]:
    """A browser without a profile of its own."""
    paths = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    missing = [name for name, path in paths.items() if path is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is missing: apt-get install chromium chromium-driver")
    with tempfile.TemporaryDirectory(prefix="rocketpy-chromium-", ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = paths["chromium"]
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = webdriver.ChromeService(executable_path=paths["chromedriver"])
        browser = webdriver.Chrome(options=options, service=service)
        try:
            browser.set_page_load_timeout(60)
            browser.set_window_size(1100, 800)
            yield browser
        finally:
            browser.quit()
