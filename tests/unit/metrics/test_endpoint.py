"""The endpoint answers a real request, and a taken port is one clear line."""

import contextlib
import socket
import urllib.request

import pytest

from rocketpy.errors import ConfigError
from rocketpy.metrics import NamesrvSnapshot, listen_by_default, port_of
from rocketpy.metrics.collector import NamesrvCollector
from rocketpy.metrics.endpoint import serve

SNAPSHOT = NamesrvSnapshot(brokers=2, clusters=1, topics=7, connections=3, requests={})


def test_scrape() -> None:
    with (
        serve("127.0.0.1", 0, NamesrvCollector(lambda: SNAPSHOT)) as endpoint,
        urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics", timeout=10) as answer,
    ):
        assert b"\nrocketpy_namesrv_brokers 2.0\n" in answer.read()


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
