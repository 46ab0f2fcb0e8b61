"""Invariant: whatever happens to the copy of the manager that makes the answer to a scrape, the manager serves, the
scraper gets an answer, the next one gets its figures, and no copy stays behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the broker needs the compiled core")

from rocketpy.codes import ResponseCode
from tests.support.broker import RunningBroker, free_ports, running_broker
from tests.support.waiting import metric, wait_until
from tests.support.wire import Wire, max_offset, send_request

TOPICS = 1_200  # with as many offsets: more entries than a scrape goes through in the manager itself
TOPIC, GROUP = "topic_7", "group"
FORMS = ("", "text/plain;version=1.0.0", "application/openmetrics-text", "text/plain;version=1.0.0;escaping=values")


@attrs.define
class Rig:
    broker: RunningBroker
    port: int  # of metrics
    threads: ThreadPoolExecutor

    def scrape(self, accept: str = "", query: str = "") -> str:
        url = f"http://127.0.0.1:{self.port}/metrics{query}"
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=60) as answer:
            return str(answer.read().decode())

    @property
    def manager(self) -> int:
        return self.broker.workers()["manager"]

    def copies(self) -> list[int]:
        """The copies of the manager that are at work."""
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{self.manager}/task/{self.manager}/children").read_text().split()
            return [int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text() == "scrape\n"]
        return []

    def stopped_copy(self) -> tuple[int, Future[str]]:
        """Begin scrapes until a copy stands still in the middle of its work; returns it, and the scrape."""
        while True:
            scrape = self.threads.submit(self.scrape, FORMS[-1])
            while not scrape.done():
                for pid in self.copies():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGSTOP)
                        wait_until(lambda pid=pid: state_of(pid) in "TZ")  # type: ignore[misc]
                        if state_of(pid) == "T":
                            return pid, scrape


def state_of(pid: int) -> str:
    """As man 5 proc has it; Z as well if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return "Z"


def fill_tables(store: Path) -> None:
    config = store / "config"
    config.mkdir(parents=True)
    names = [f"topic_{number}" for number in range(TOPICS)]
    one = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG"}
    topics = {
        "dataVersion": {"timestamp": 1, "counter": 1},
        "topicConfigTable": {n: one | {"topicName": n} for n in names},
    }
    (config / "topics.json").write_text(json.dumps(topics))
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": {f"{n}@{GROUP}": {"0": 0} for n in names}}))
    groups = {"dataVersion": topics["dataVersion"], "subscriptionGroupTable": {GROUP: {"groupName": GROUP}}}
    (config / "subscriptionGroup.json").write_text(json.dumps(groups))


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    fill_tables(tmp_path / "store")
    port, _ = free_ports()
    with (
        ThreadPoolExecutor(16) as threads,
        running_broker({"metricsPort": str(port)}, store=tmp_path / "store") as broker,
    ):
        yield Rig(broker, port, threads)


def serves(rig: Rig, topic: str) -> bool:
    """Return True if the manager makes a topic."""
    with Wire.open(rig.broker.port) as wire:
        return wire.ask(send_request(topic, b"creates")).code == ResponseCode.SUCCESS


def test_a_copy_reads_the_store(rig: Rig) -> None:
    """The age of an unread message is in files, which the manager has open and the copy has not."""
    with Wire.open(rig.broker.port) as wire:
        assert wire.ask(send_request(TOPIC, b"unread")).code == ResponseCode.SUCCESS
        wait_until(lambda: max_offset(wire, TOPIC) == 1)
    text = rig.scrape(FORMS[-1])
    assert f'rocketpy_consumer_lag_messages{{group="{GROUP}",topic="{TOPIC}"}} 1.0\n' in text
    assert f'rocketpy_topic_messages{{topic="{TOPIC}"}} 1.0\n' in text
    _, _, age = text.partition(f'rocketpy_consumer_oldest_age_seconds{{group="{GROUP}",topic="{TOPIC}"}} ')
    assert float(age.partition("\n")[0]) > 0


def test_the_manager_serves_while_a_copy_stands_still_and_tells_of_one_that_was_killed(rig: Rig) -> None:
    copy, scrape = rig.stopped_copy()
    waiting = rig.threads.submit(rig.scrape)
    assert serves(rig, "made_meanwhile")
    assert rig.copies() == [copy], "the other scrape waits for its turn"
    os.kill(copy, signal.SIGKILL)
    with pytest.raises(urllib.error.HTTPError, match="503") as caught:
        scrape.result()
    with caught.value as answer:
        assert answer.read() == b"its process was killed by SIGKILL\n"
    assert 'rocketpy_topic_messages{topic="made_meanwhile"}' in waiting.result()
    assert metric(rig.port, 'rocketpy_broker_faults_total{place="scrape"}') == 1
    assert "a scrape of 127.0.0.1 failed: its process was killed by SIGKILL" in rig.broker.text()
    assert rig.broker.stop() == 0


def test_a_scraper_that_leaves_ends_nothing(rig: Rig) -> None:
    with socket.create_connection(("127.0.0.1", rig.port)) as gone:
        gone.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        wait_until(lambda: bool(rig.copies()))
    assert rig.scrape(FORMS[-1])
    wait_until(lambda: not rig.copies())
    assert metric(rig.port, "rocketpy_broker_faults_total") == 0


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_a_copy_ends_with_the_manager(rig: Rig, end: str) -> None:
    copy, scrape = rig.stopped_copy()
    if end == "killed":
        os.kill(rig.manager, signal.SIGKILL)
    else:
        assert rig.broker.stop() == 0
    wait_until(lambda: state_of(copy) == "Z")
    assert scrape.exception() is not None
    if end == "killed":
        wait_until(lambda: serves(rig, "made_by_the_next"))
        assert 'rocketpy_worker_restarts_total{worker="manager"} 1.0\n' in rig.scrape(FORMS[-1])


def test_many_scrapes_at_once_have_one_copy_at_a_time(rig: Rig) -> None:
    most, is_over = 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not is_over.is_set():
            most = max(most, len(rig.copies()))

    watching = rig.threads.submit(watch)
    names = {"": "rocketpy_broker_topics", f"?queues={TOPIC}": "rocketpy_queue_max_offset"}
    scrapes = {(form, query): rig.threads.submit(rig.scrape, form, query) for form in FORMS for query in names}
    texts = {asked: scrape.result() for asked, scrape in scrapes.items()}
    is_over.set()
    watching.result()
    assert most == 1 and all(names[query] in text for (_, query), text in texts.items())
