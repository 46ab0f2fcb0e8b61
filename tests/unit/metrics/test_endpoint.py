"""The endpoint answers a real request, and a taken port is one clear line."""

import contextlib
import http.client
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest

from rocketpy.errors import ConfigError
from rocketpy.metrics.address import listen, listen_by_default, port_of
from rocketpy.metrics.collector import NamesrvCollector, QueueCollector, RowCollector
from rocketpy.metrics.endpoint import SCRAPES_MAX, SCRAPES_OF_HOST_MAX, Endpoint, _Server, _Turns, serve
from rocketpy.metrics.scrape import ScrapeFailed
from rocketpy.metrics.snapshot import NamesrvSnapshot, QueueSnapshot
from rocketpy.metrics.table import NAMESRV_METRICS
from rocketpy.tls import client_context, server_context
from tests.support.certificates import Authority, tls_config
from tests.support.waiting import wait_until

SNAPSHOT = NamesrvSnapshot(brokers=2, clusters=1, topics=7, connections=3, requests={})


def test_scrape() -> None:
    with (
        serve("127.0.0.1", 0, NamesrvCollector(lambda: SNAPSHOT)) as endpoint,
        urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics", timeout=10) as answer,
    ):
        assert b"\nrocketpy_namesrv_brokers 2.0\n" in answer.read()


def test_a_scrape_of_single_names_shows_these_alone() -> None:
    """As prometheus_client does for other programs.
    Fault: A scrape of `name[]` was empty."""
    query = "name[]=rocketpy_namesrv_topics&name[]=nothing"
    with (
        serve("127.0.0.1", 0, NamesrvCollector(lambda: SNAPSHOT)) as endpoint,
        urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics?{query}", timeout=10) as answer,
    ):
        shown = [line for line in answer.read().decode().splitlines() if line[0] != "#"]
    assert shown == ["rocketpy_namesrv_topics 7.0"]


def scrape(port: int, context: ssl.SSLContext | None) -> bytes:
    kind = "http" if context is None else "https"
    with urllib.request.urlopen(f"{kind}://127.0.0.1:{port}/metrics", timeout=10, context=context) as answer:
        return bytes(answer.read())


def test_a_scrape_that_names_topics_shows_their_queues_alone() -> None:
    queue = QueueSnapshot(topic="", queue_id=3, min_offset=5, max_offset=25, consumed={"G": 20, "H": 2})

    def queues(topics: list[str]) -> QueueCollector:
        return QueueCollector(lambda: [attrs.evolve(queue, topic=topic) for topic in topics])

    whole = NamesrvCollector(lambda: SNAPSHOT)
    with Endpoint(listen("127.0.0.1", 0), whole, queues=queues) as endpoint:
        url = f"http://127.0.0.1:{endpoint.port}/metrics?queues=T%25&queues=U"
        with urllib.request.urlopen(url, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        assert b"rocketpy_queue" not in scrape(endpoint.port, None)
    assert {line for line in lines if line[0] != "#" and "U" not in line} == {
        'rocketpy_queue_min_offset{queue="3",topic="T%"} 5.0',
        'rocketpy_queue_max_offset{queue="3",topic="T%"} 25.0',
        'rocketpy_queue_consumer_offset{group="G",queue="3",topic="T%"} 20.0',
        'rocketpy_queue_consumer_offset{group="H",queue="3",topic="T%"} 2.0',
        'rocketpy_queue_lag_messages{group="G",queue="3",topic="T%"} 5.0',
        'rocketpy_queue_lag_messages{group="H",queue="3",topic="T%"} 20.0',
    }
    assert 'rocketpy_queue_max_offset{queue="3",topic="U"} 25.0' in lines


def test_scrape_by_tls_with_the_context_of_the_moment(tmp_path: Path) -> None:
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    served = [server_context(tls_config(old.issue().settings()))]
    trusting = [client_context(tls_config(authority.trusting())) for authority in (old, new)]
    with serve("127.0.0.1", 0, NamesrvCollector(lambda: SNAPSHOT), lambda: served[-1]) as endpoint:
        assert b"\nrocketpy_namesrv_brokers 2.0\n" in scrape(endpoint.port, trusting[0])
        served.append(server_context(tls_config(new.issue().settings())))
        assert b"\nrocketpy_namesrv_brokers 2.0\n" in scrape(endpoint.port, trusting[1])
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            scrape(endpoint.port, trusting[0])


def test_a_scrape_shows_the_certificate_that_is_asked_for(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = server_context(tls_config(authority.issue().settings(), authority.asking()))
    with serve("127.0.0.1", 0, NamesrvCollector(lambda: SNAPSHOT), lambda: context) as endpoint:
        assert scrape(endpoint.port, client_context(tls_config(authority.trusting(authority.issue()))))
        with pytest.raises((OSError, http.client.HTTPException)):
            scrape(endpoint.port, client_context(tls_config(authority.trusting())))


def test_a_plain_scrape_of_tls_is_one_line_with_the_remedy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    context = server_context(tls_config(Authority(tmp_path).issue().settings()))
    with serve("127.0.0.1", 0, NamesrvCollector(lambda: SNAPSHOT), lambda: context) as endpoint:
        for _ in range(2):
            with pytest.raises((OSError, http.client.HTTPException)):
                scrape(endpoint.port, None)
    reason = "it speaks no TLS"  # a thread of another test's endpoint may log a line meanwhile
    lines = [record.message for record in caplog.records if reason in record.message]
    assert lines == [f"a scrape of 127.0.0.1 failed: {reason} (metricsUseTLS=true): give its job `scheme: https`"]


@pytest.mark.parametrize("has_tls", [False, True])
def test_a_client_that_stops_is_closed(tmp_path: Path, has_tls: bool) -> None:
    context = server_context(tls_config(Authority(tmp_path).issue().settings()))
    contexts = (lambda: context) if has_tls else None
    collector = NamesrvCollector(lambda: SNAPSHOT)
    with Endpoint(listen("127.0.0.1", 0), collector, contexts, silence_max_s=0.05) as endpoint:
        begun_s = time.monotonic()
        with socket.create_connection(("127.0.0.1", endpoint.port), 10) as stopped:
            stopped.sendall(b"\x16\x03\x01" if has_tls else b"GET /met")
            assert stopped.recv(100) == b""
        assert time.monotonic() - begun_s < 5.0


def trickle(port: int, context: ssl.SSLContext | None, host: str = "127.0.0.1") -> socket.socket:
    """A client at `host` that begins a request, whose rest it sends byte by byte."""
    stream = socket.create_connection(("127.0.0.1", port), 10, source_address=(host, 0))
    if context is not None:
        stream = context.wrap_socket(stream, server_hostname="127.0.0.1")
    stream.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
    stream.settimeout(0.02)
    return stream


def is_open(stream: socket.socket) -> bool:
    """Send a byte, and return whether the endpoint has not answered or closed."""
    with contextlib.suppress(OSError):
        stream.sendall(b"x")
    try:
        return bool(stream.recv(100))
    except TimeoutError:
        return True
    except OSError:
        return False


@pytest.mark.parametrize("has_tls", [False, True])
def test_a_client_that_sends_a_byte_now_and_then_is_closed(
    tmp_path: Path, has_tls: bool, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Fault: A client that was never silent for long kept a thread of the endpoint for ever."""
    authority = Authority(tmp_path)
    served = server_context(tls_config(authority.issue().settings()))
    trusting = client_context(tls_config(authority.trusting())) if has_tls else None
    collector, contexts = NamesrvCollector(lambda: SNAPSHOT), (lambda: served) if has_tls else None
    with (
        Endpoint(listen("127.0.0.1", 0), collector, contexts, scrape_max_s=1.0) as endpoint,
        trickle(endpoint.port, trusting) as client,
    ):
        begun_s = time.monotonic()
        while is_open(client):
            assert time.monotonic() - begun_s < 10.0
        wait_until(lambda: not scrape_threads())
    # Beside the line of the scrape's own thread, whose write fails: either may be the first.
    assert "closed a scrape of 127.0.0.1: it took more than 1 s" in [record.message for record in caplog.records]
    assert "Traceback" not in capfd.readouterr().err


def scrape_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if "_serve_scrape" in thread.name]


@pytest.mark.parametrize("has_tls", [False, True])
def test_connections_beyond_the_bound_are_closed_at_once(
    tmp_path: Path, has_tls: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Fault: Each connection to the endpoint had a thread, however many there were."""
    authority = Authority(tmp_path)
    served = server_context(tls_config(authority.issue().settings()))
    trusting = client_context(tls_config(authority.trusting())) if has_tls else None
    contexts = (lambda: served) if has_tls else None
    with serve("127.0.0.1", 0, NamesrvCollector(lambda: SNAPSHOT), contexts) as endpoint:
        with contextlib.ExitStack() as stack:
            hosts = [f"127.0.0.{2 + number % 2}" for number in range(SCRAPES_MAX)]
            slow = [stack.enter_context(trickle(endpoint.port, trusting, host)) for host in hosts]
            for _ in range(2):
                with pytest.raises((OSError, http.client.HTTPException)):
                    scrape(endpoint.port, trusting)
            assert len(scrape_threads()) == SCRAPES_MAX and all(map(is_open, slow))
        wait_until(lambda: not scrape_threads())
        assert scrape(endpoint.port, trusting)
    assert caplog.records[0].message == "closed a scrape of 127.0.0.1: 16 others, 0 of it, have not ended"


def test_one_address_leaves_room_for_others(caplog: pytest.LogCaptureFixture) -> None:
    """Fault: One client that kept its connections open locked all others out of the metrics."""
    with (
        serve("127.0.0.1", 0, NamesrvCollector(lambda: SNAPSHOT)) as endpoint,
        contextlib.ExitStack() as stack,
    ):
        streams = [stack.enter_context(trickle(endpoint.port, None, "127.0.0.2")) for _ in range(SCRAPES_MAX)]
        wait_until(lambda: sum(map(is_open, streams)) == SCRAPES_OF_HOST_MAX)
        assert scrape(endpoint.port, None)
    assert caplog.records[0].message == "closed a scrape of 127.0.0.2: 8 others, 8 of it, have not ended"


def test_one_network_of_ipv6_leaves_room_for_others() -> None:
    """Fault: One machine took all scrapes from the many IPv6 addresses of its /64."""
    pairs = [socket.socketpair() for _ in range(SCRAPES_MAX)]
    hosts = [f"2001:db8::{number}" for number in range(SCRAPES_OF_HOST_MAX + 3)]
    hosts += [f"2001:db8:0:{number}::1" for number in range(1, SCRAPES_MAX - len(hosts) + 1)]
    coming = [(ours, (host, 4000, 0, 0)) for (ours, _), host in zip(pairs, hosts, strict=True)]
    listener = SimpleNamespace(setblocking=lambda is_blocking: None, accept=lambda: coming.pop(0))
    server = _Server(cast("Any", listener), lambda request: b"HTTP/1.0 200 OK\r\n\r\n", None, 10.0, 30.0)
    for _ in pairs:
        server._accept()
    is_taken = []
    for _, client in pairs:
        client.settimeout(0.02)
        is_taken.append(is_open(client))
        client.close()
    assert is_taken == [True] * SCRAPES_OF_HOST_MAX + [False] * 3 + [True] * (SCRAPES_MAX - SCRAPES_OF_HOST_MAX - 3)
    wait_until(lambda: not scrape_threads())


def test_a_scrape_that_fails_is_a_line_a_minute(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Fault: Each scrape that raised an exception wrote a traceback to the log, so one client could fill the disk."""

    def fail() -> NamesrvSnapshot:
        raise ValueError("of a snapshot")

    with serve("127.0.0.1", 0, NamesrvCollector(fail)) as endpoint:
        for _ in range(3):
            with pytest.raises(urllib.error.HTTPError, match="500") as caught:
                scrape(endpoint.port, None)
            caught.value.close()
    [line] = [record.message for record in caplog.records]
    assert line.startswith("a scrape of 127.0.0.1 failed: ValueError: of a snapshot\n") and "in fail" in line
    assert "Traceback" not in capfd.readouterr().err


def refused(port: int) -> str:
    """The text of the answer to a scrape that fails for now."""
    with pytest.raises(urllib.error.HTTPError, match="503") as caught:
        scrape(port, None)
    with caught.value as answer:
        return bytes(answer.read()).decode()


def test_an_answer_that_another_process_does_not_make_has_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    def make(work: Callable[[], bytes]) -> bytes:
        assert b"\nrocketpy_namesrv_brokers 2.0\n" in work()
        raise ScrapeFailed("it took more than 20 s")

    with serve("127.0.0.1", 0, RowCollector(lambda: SNAPSHOT, NAMESRV_METRICS, make)) as endpoint:
        assert {refused(endpoint.port) for _ in range(3)} == {"it took more than 20 s\n"}
    [line] = [record.message for record in caplog.records]
    assert line == "a scrape of 127.0.0.1 failed: it took more than 20 s"


def test_a_scrape_waits_for_others_no_longer_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: One scrape that hung held up all others, each of them in a thread, until they were cut."""
    monkeypatch.setattr("rocketpy.metrics.endpoint.TURN_MAX_S", 0.0)
    begun, end = threading.Event(), threading.Event()

    def snapshot() -> NamesrvSnapshot:
        begun.set()
        end.wait()
        return SNAPSHOT

    with (
        serve("127.0.0.1", 0, NamesrvCollector(snapshot)) as endpoint,
        ThreadPoolExecutor(1) as pool,
    ):
        first = pool.submit(scrape, endpoint.port, None)
        begun.wait()
        assert refused(endpoint.port) == "other scrapes have taken more than 0 s\n"
        end.set()
        assert first.result()


def test_scrapes_take_turns_in_the_order_in_which_they_come() -> None:
    """Fault: One client that asked again and again kept the turn, and another waited without end."""
    turns, entered, came, pauses = _Turns(), [], threading.Semaphore(0), [threading.Event() for _ in range(4)]

    def enter(number: int) -> None:
        came.release()
        with turns.take():
            entered.append(number)
            pauses[number].wait()

    with ThreadPoolExecutor(4) as pool:
        for number in range(3):
            pool.submit(enter, number)
            came.acquire()
            wait_until(lambda number=number: len(turns._waiting) == number + 1)  # type: ignore[misc]
        pauses[0].set()
        pool.submit(enter, 3)
        for pause in pauses:
            pause.set()
    assert entered == [0, 1, 2, 3] and not turns._waiting


def test_scrapes_of_one_moment_share_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: Each scrape took a snapshot in the loop that serves, so one client could keep that loop busy."""
    taken: list[int] = []

    def snapshot() -> NamesrvSnapshot:
        taken.append(1)
        return attrs.evolve(SNAPSHOT, brokers=len(taken))

    def brokers(*_: object) -> bytes:
        return scrape(endpoint.port, None).partition(b"\nrocketpy_namesrv_brokers ")[2].partition(b"\n")[0]

    monkeypatch.setattr("rocketpy.metrics.endpoint.SHARED_S", 3600.0)
    with serve("127.0.0.1", 0, NamesrvCollector(snapshot)) as endpoint, ThreadPoolExecutor(4) as pool:
        assert set(pool.map(brokers, range(12))) == {b"1.0"}
        monkeypatch.setattr("rocketpy.metrics.endpoint.SHARED_S", 0.0)
        assert [brokers(), brokers()] == [b"2.0", b"3.0"]


UNUSUAL = "text/plain; version=1.0.0; escaping=values"


@pytest.mark.parametrize(("query", "accept"), [("", UNUSUAL), ("queues=T", ""), ("queues=T", UNUSUAL)])
def test_scrapes_that_share_no_text_take_turns(query: str, accept: str) -> None:
    """Fault: Scrapes in other forms, or of queues, took their snapshots at the same time."""
    busy, together = threading.Semaphore(1), threading.Event()

    def wait() -> None:
        if busy.acquire(blocking=False):
            together.wait(0.05)  # the others have come
            busy.release()
        else:
            together.set()

    def snapshot() -> NamesrvSnapshot:
        wait()
        return SNAPSHOT

    def queues(topics: list[str]) -> QueueCollector:
        return QueueCollector(lambda: wait() or [])

    def ask(_: int) -> None:
        address = f"http://127.0.0.1:{endpoint.port}/metrics?{query}"
        with urllib.request.urlopen(urllib.request.Request(address, headers={"Accept": accept}), timeout=10) as answer:
            assert answer.status == 200

    with (
        Endpoint(listen("127.0.0.1", 0), NamesrvCollector(snapshot), queues=queues) as endpoint,
        ThreadPoolExecutor(4) as pool,
    ):
        list(pool.map(ask, range(4)))
    assert not together.is_set()


def test_a_closed_endpoint_frees_its_port() -> None:
    endpoint = serve("127.0.0.1", 0, NamesrvCollector(lambda: SNAPSHOT))
    port = endpoint.port
    endpoint.close()
    serve("127.0.0.1", port, NamesrvCollector(lambda: SNAPSHOT)).close()


def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"^metricsPort: 127\.0\.0\.1:{port} is in use by another process;"):
            serve("127.0.0.1", port, NamesrvCollector(lambda: SNAPSHOT))


def test_the_default_port_moves_where_one_that_is_given_would_not() -> None:
    with contextlib.ExitStack() as stack:
        ports = [port_of(stack.enter_context(listen_by_default("127.0.0.1", avoid=(5559,)))) for _ in range(4)]
    assert len(set(ports)) == 4 and ports == sorted(ports) and 5559 not in ports and min(ports) >= 5557


def test_where_all_next_ports_are_taken_the_kernel_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr("rocketpy.metrics.address.DEFAULT_PORT", port_of(taken))
        monkeypatch.setattr("rocketpy.metrics.address.NEXT_PORTS", 1)
        with listen_by_default("127.0.0.1") as listener:
            assert port_of(listener) not in (0, port_of(taken))


def test_no_port_helps_where_the_address_is_not_ours() -> None:
    with pytest.raises(ConfigError, match=r"metricsPort: cannot listen on 203\.0\.113\.1:5557"):
        listen_by_default("203.0.113.1")


def test_an_address_that_is_not_ours() -> None:
    with pytest.raises(ConfigError, match=r"metricsPort: cannot listen on 203\.0\.113\.1:1"):
        serve("203.0.113.1", 1, NamesrvCollector(lambda: SNAPSHOT))
