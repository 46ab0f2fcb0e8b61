"""After known traffic the counters are exactly right, across the death of a worker too."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.message.batch import BatchEntry, encode_batch
from rocketpy.metrics.address import DEFAULT_PORT
from rocketpy.remoting.command import RemotingCommand
from tests.support.broker import RunningBroker, free_ports, running_broker
from tests.support.certificates import Authority
from tests.support.pair import NameServer
from tests.support.waiting import fresh_metrics
from tests.support.wire import Wire, max_offset, pull_request, read_all, records_of, send_request, until

SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
TOPIC = "Counted"


@attrs.define
class Scraped:
    broker: RunningBroker
    port: int
    tls: ssl.SSLContext | None = None  # None: metrics are plain

    def samples(self, query: str = "") -> dict[tuple[str, str], float]:
        """(name, labels as exposed) to value."""
        url = f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}/metrics{query}"
        with urllib.request.urlopen(fresh_metrics(url), timeout=60, context=self.tls) as answer:
            lines = answer.read().decode().splitlines()
        found = [SAMPLE.match(line) for line in lines if not line.startswith("#")]
        assert all(found)
        return {(match[1], match[2] or ""): float(match[3]) for match in found if match}

    def total(self, name: str, label: str = "") -> float:
        """Sum over the samples of a name whose labels contain `label`."""
        found = [value for (sample, labels), value in self.samples().items() if sample == name and label in labels]
        assert found, f"no sample of {name} with {label!r}"
        return sum(found)


PATIENT = dict.fromkeys(("osPageCacheBusyTimeOutMills", "waitTimeMillsInSendQueue"), "10000")  # the machine may be busy


@pytest.fixture
def scraped() -> Iterator[Scraped]:
    port, _ = free_ports()
    with running_broker(PATIENT | {"metricsPort": str(port), "codecWorkers": "1"}) as broker:
        yield Scraped(broker, port)
        assert broker.stop() == 0
        assert "Traceback" not in broker.text()


def test_metrics_by_tls_of_both_servers_and_a_renewed_certificate(tmp_path: Path) -> None:
    """A scrape without TLS gets nothing, and a certificate that is replaced is served soon."""
    authority = Authority(tmp_path)
    issued, next_one = authority.issue(), authority.issue()
    trust = ssl.create_default_context(cafile=authority.ca_file)
    port, namesrv_port = free_ports()
    settings = issued.settings() | {"tls.server.mode": "permissive", "tls.config.file": "/dev/null"}
    settings |= {"metricsUseTLS": "true", "metricsPort": str(port)}
    namesrv = NameServer(tmp_path / "store", 0, namesrv_port, tmp_path / "log", settings)
    try:
        namesrv.start()
        scraped = Scraped(namesrv, port, trust)
        until(lambda: can_scrape(scraped), "the name server's metrics are served")
        assert scraped.total("rocketpy_namesrv_brokers") == 0
    finally:
        namesrv.kill_all()
    with running_broker(settings) as broker:
        scraped = Scraped(broker, port, trust)
        until(lambda: scraped.total("rocketpy_tls_certificate_not_after_seconds") > 0, "the TLS worker shows its file")
        with pytest.raises((OSError, http.client.HTTPException)):
            Scraped(broker, port).samples()
        before = served_certificate(port)
        issued.replace(next_one)
        until(lambda: served_certificate(port) != before, "the new certificate is served")
        assert scraped.total("rocketpy_broker_topics") > 0
        assert "give its job `scheme: https`" in broker.text()


def can_scrape(scraped: Scraped) -> bool:
    try:
        return bool(scraped.samples())
    except OSError:
        return False


def served_certificate(port: int) -> str:
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=10)


def test_counters_are_exactly_right(scraped: Scraped) -> None:
    with Wire.open(scraped.broker.port) as wire:
        assert wire.ask(send_request(TOPIC, b"creates")).code == ResponseCode.SUCCESS
        answers = wire.answers(wire.tell(*(send_request(TOPIC, b"x" * 100) for _ in range(40))))
        assert all(answer.code == ResponseCode.SUCCESS for answer in answers.values())
        batch = encode_batch([BatchEntry(b"y" * 10, b"KEYS\x01k%d\x02" % n) for n in range(9)])
        request = send_request(TOPIC, batch, code=RequestCode.SEND_BATCH_MESSAGE, batch=True)
        assert wire.ask(request).code == ResponseCode.SUCCESS
        assert wire.ask(send_request(TOPIC, bytes((4 << 20) + 1))).code == ResponseCode.MESSAGE_ILLEGAL
        until(lambda: max_offset(wire, TOPIC) == 50, "dispatch")
        read_all(wire, TOPIC, 1)  # makes the group known, and reads 32 of them at once
        already = scraped.total("rocketpy_pull_messages_total")
        answer = wire.ask(pull_request(TOPIC, 0, count=10))
        found = records_of(answer)
        assert wire.ask(pull_request(TOPIC, 50)).code == ResponseCode.PULL_NOT_FOUND
        assert scraped.total("rocketpy_send_messages_total") == 50
        assert scraped.total("rocketpy_send_latency_seconds_count") == 42, "one for each request that was stored"
        assert scraped.total("rocketpy_send_latency_seconds_bucket", 'le="+Inf"') == 42
        assert scraped.total("rocketpy_store_dispatched_messages_total") == 50
        assert scraped.total("rocketpy_store_indexed_keys_total") == 9
        assert scraped.total("rocketpy_pull_messages_total") - already == len(found) == 10
        assert scraped.total("rocketpy_pull_misses_total") >= 1
        published = scraped.total("rocketpy_store_published_offset_bytes")
        assert scraped.total("rocketpy_send_bytes_total") == published
        assert scraped.total("rocketpy_topic_messages", f'topic="{TOPIC}"') == 50
        queues = scraped.samples(f"?queues={TOPIC}&queues=unknown")
        assert {name for name, _ in queues} == {"rocketpy_queue_min_offset", "rocketpy_queue_max_offset"}
        assert queues["rocketpy_queue_max_offset", f'queue="0",topic="{TOPIC}"'] == 50
        opened = scraped.total("rocketpy_remoting_connections_opened_total")
        with Wire.open(scraped.broker.port) as other:
            assert max_offset(other, TOPIC) == 50
            assert scraped.total("rocketpy_remoting_connections") == 2
            assert scraped.total("rocketpy_remoting_connections_opened_total") == opened + 1
        until(lambda: scraped.total("rocketpy_remoting_connections") == 1, "the other connection is gone")
        assert scraped.total("rocketpy_remoting_connections_closed_total") == opened


def test_reads_that_commit_nothing_are_counted_by_name(scraped: Scraped) -> None:
    """As those of a broadcasting group.
    Holds: client, broadcasting."""
    with Wire.open(scraped.broker.port) as wire:
        for number in range(20):
            assert wire.ask(send_request(TOPIC, b"x" * 100)).code == ResponseCode.SUCCESS, number
        until(lambda: max_offset(wire, TOPIC) == 20, "dispatch")
        read_all(wire, TOPIC, 1)
        pulled = pull_request(TOPIC, 0, count=10)
        assert len(records_of(wire.ask(pulled))) == 10
        group = (pulled.ext_fields or {})["consumerGroup"]

        def counted(name: str, key: str) -> bool:
            return wire.ask(RemotingCommand.request(315, ext_fields={"statsName": name, "statsKey": key})).code == 0

        keys = {
            "TOPIC_PUT_NUMS": TOPIC,
            "TOPIC_PUT_SIZE": TOPIC,
            "GROUP_GET_NUMS": f"{TOPIC}@{group}",
            "GROUP_GET_SIZE": f"{TOPIC}@{group}",
            "GROUP_GET_LATENCY": f"0@{TOPIC}@{group}",
        }
        until(lambda: all(counted(*item) for item in keys.items()), "statistics by name")
        assert not counted("GROUP_GET_NUMS", f"{TOPIC}@nobody")


def test_nothing_is_refused_for_overload_at_modest_load(scraped: Scraped) -> None:
    """Eight connections with sixteen sends each under way, and pulls behind them: far from what two cores serve."""
    with contextlib.ExitStack() as opened:
        wires = [opened.enter_context(Wire.open(scraped.broker.port)) for _ in range(8)]
        assert wires[0].ask(send_request(TOPIC, b"creates")).code == ResponseCode.SUCCESS
        for _ in range(50):
            sent = [wire.tell(*(send_request(TOPIC, b"x" * 500) for _ in range(16))) for wire in wires]
            for wire, opaques in zip(wires, sent, strict=True):
                codes = {answer.code for answer in wire.answers(opaques).values()}
                assert codes == {ResponseCode.SUCCESS}
        read_all(wires[0], TOPIC, 6401)
        assert scraped.total("rocketpy_worker_busy_replies_total") == 0
        waits = {pool: scraped.total("rocketpy_pool_waiting_requests", f'pool="{pool}"') for pool in ("send", "pull")}
        assert waits == {"send": 0, "pull": 0}
        assert scraped.total("rocketpy_pool_head_wait_seconds") == 0


def test_bytes_and_frames_of_a_connection_are_counted(scraped: Scraped) -> None:
    names = ("received_bytes", "sent_bytes", "frames_received", "frames_sent")
    with Wire.open(scraped.broker.port) as wire:
        assert wire.ask(send_request(TOPIC, b"creates")).code == ResponseCode.SUCCESS
        before = {name: scraped.total(f"rocketpy_remoting_{name}_total", "selector") for name in names}
        request = wire.number(send_request(TOPIC, b"counted"))
        wire.sock.sendall(request.encode())
        size = int.from_bytes(wire.sock.recv(4), "big")
        rest = wire.sock.recv(size, socket.MSG_WAITALL)
        assert len(rest) == size
        after = {name: scraped.total(f"rocketpy_remoting_{name}_total", "selector") for name in names}
    grown = {name: after[name] - before[name] for name in names}
    expected = {"received_bytes": len(request.encode()), "sent_bytes": 4 + size}
    assert grown == expected | {"frames_received": 1, "frames_sent": 1}


def test_every_ring_and_every_worker_is_seen(scraped: Scraped) -> None:
    samples = scraped.samples()
    rings = {labels for name, labels in samples if name == "rocketpy_ring_capacity_bytes"}
    assert rings == {labels for name, labels in samples if name == "rocketpy_ring_used_bytes"}
    for source, target in (("selector-0", "codec-0"), ("codec-0", "send"), ("send", "selector-0"), ("manager", "send")):
        assert f'source="{source}",target="{target}"' in rings
    ready = {labels: value for (name, labels), value in samples.items() if name == "rocketpy_worker_ready"}
    for worker in ("acceptor", "selector-0", "codec-0", "send", "pull", "manager", "store"):
        (value,) = (value for labels, value in ready.items() if f'worker="{worker}"' in labels)
        assert value == 1


@pytest.mark.parametrize("worker", ["send", "codec", "pull"])
def test_a_killed_worker_is_counted_and_its_counters_stay(scraped: Scraped, worker: str) -> None:
    with Wire.open(scraped.broker.port) as wire:
        for _ in range(5):
            assert wire.ask(send_request(TOPIC, b"before")).code == ResponseCode.SUCCESS
        assert scraped.total("rocketpy_worker_restarts_total") == 0
        (name,) = (name for name in scraped.broker.workers() if worker in name)
        old = scraped.broker.kill_worker(name)
        until(lambda: scraped.broker.workers().get(name, old) != old, "a restarted worker")
        assert wire.ask(send_request(TOPIC, b"after")).code == ResponseCode.SUCCESS
        assert scraped.total("rocketpy_worker_restarts_total") == 1
        assert scraped.total("rocketpy_worker_restarts_total", f'worker="{worker}') == 1
        assert scraped.total("rocketpy_send_messages_total") == 6


def test_a_default_port_that_is_taken_moves_and_says_where_to() -> None:
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # taken by somebody else: just as good
            stack.enter_context(socket.create_server(("127.0.0.1", DEFAULT_PORT)))
        broker = stack.enter_context(running_broker({"metricsPort": "-1"}))
        (port,) = re.findall(r"metrics +http://127\.0\.0\.1:(\d+)/metrics", broker.text())
        assert int(port) != DEFAULT_PORT
        assert f"port {DEFAULT_PORT} is in use: serving metrics on port {port}" in broker.text()
        scraped = Scraped(broker, int(port))
        assert scraped.samples()
        broker.kill_worker("manager")
        until(lambda: bool(scraped.samples()), "metrics of the restarted manager")
        assert broker.stop() == 0
