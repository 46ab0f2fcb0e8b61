"""Brokers that are reached at several addresses: behind NAT, in containers, by IPv6."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.client import Message, ProducerOptions, PullOptions
from rocketpy.client.options import START_FIRST
from rocketpy.client.sync import Producer, PullConsumer
from tests.support import preloaded
from tests.support.broker import RunningBroker, free_ports, running_broker
from tests.support.forwarding import PROXY_HOST, forwarded, has_ipv6
from tests.support.pair import LoneBroker, NameServer, ha_status
from tests.support.waiting import wait_until

COUNT = 5
SMALL = {"mappedFileSizeCommitLog": "1048576", "maxMessageSize": "65536", "brokerName": "broker-a"}


def addresses(namesrv: str) -> dict[str, str]:
    """What a name server tells mqadmin: addresses by broker id."""
    words = [*preloaded.COMMAND, "admin", "clusterList", "-n", namesrv, "--output", "json"]
    done = preloaded.run(words, timeout=60)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {str(row["bid"]): row["addr"] for row in rows}


def send_and_consume(namesrv: str, topic: str) -> None:
    sent = [b"%d" % number for number in range(COUNT)]
    with Producer("p", ProducerOptions(name_servers=namesrv)) as producer:
        for body in sent:
            producer.send(Message(topic, body))
    options = PullOptions(name_servers=namesrv, start=START_FIRST)
    received: list[bytes] = []
    with PullConsumer(f"g-{topic}", options) as consumer:
        consumer.subscribe(topic)
        for _ in range(10):  # each waits 5 s for a message
            if len(received) < COUNT:
                received += [message.body for message in consumer.poll()]
    assert sorted(received) == sent


def test_clients_and_a_slave_inside_and_outside(tmp_path: Path) -> None:
    """Outside only 127.0.0.2 is dialled, with other ports: as with a port that a container publishes."""
    (port, namesrv_port), (outer, outer_namesrv), (_, named) = free_ports(), free_ports(), free_ports()
    slave_port, _ = free_ports()
    namesrv = NameServer(tmp_path / "namesrv", 0, namesrv_port, tmp_path / "namesrv.log", {})
    namesrv.settings["listeners"] = f"outside=127.0.0.1:{named}"
    own = SMALL | {"advertisedAddresses": f"outside={PROXY_HOST}:{outer}"}
    master = LoneBroker(tmp_path / "master", port, namesrv_port, tmp_path / "master.log", own)
    away = SMALL | {"brokerRole": "SLAVE", "brokerId": "1", "namesrvAddr": f"{PROXY_HOST}:{outer_namesrv}"}
    slave = LoneBroker(tmp_path / "slave", slave_port, namesrv_port, tmp_path / "slave.log", away)
    published = {outer: port, outer - 2: port - 2, outer + 1: port + 1, outer_namesrv: named}
    with contextlib.ExitStack() as stack:
        for process in (namesrv, master, slave):
            stack.callback(process.kill_all)
        connections = stack.enter_context(forwarded(published))
        namesrv.start()
        master.start()
        inside, outside = namesrv.namesrv, f"{PROXY_HOST}:{outer_namesrv}"
        wait_until(lambda: addresses(inside) == {"0": master.address}, "the registration")
        send_and_consume(inside, "Inside")
        assert not connections[outer]
        assert addresses(outside) == {"0": f"{PROXY_HOST}:{outer}"}
        send_and_consume(outside, "Outside")
        assert connections[outer] >= 2, "one of the producer, one of the consumer"
        slave.start()

        def replicated() -> list[object]:
            return [row["in_sync"] for row in ha_status(inside) if "slave" in row]

        wait_until(lambda: replicated() == ["yes"], "the slave has the log")
        assert connections[outer + 1] == 1, "it dials the published HA port"
        (followed,) = [row["follows"] for row in ha_status(inside) if row.get("bid") == 1]
        assert followed == f"{PROXY_HOST}:{outer}"
        for process in (namesrv, master, slave):
            process.check_crashes()


@pytest.fixture
def in_one_process_tree(tmp_path: Path) -> Iterator[tuple[RunningBroker, str]]:
    _, named = free_ports()
    settings = {"listeners": f"outside=127.0.0.1:{named}", "advertisedAddresses": f"outside={PROXY_HOST}"}
    with running_broker(settings, store=tmp_path / "store") as broker:
        yield broker, f"127.0.0.1:{named}"


def test_standalone_has_listeners_as_well(in_one_process_tree: tuple[RunningBroker, str]) -> None:
    broker, outside = in_one_process_tree
    with forwarded({port: port for port in (broker.port, broker.port - 2)}):
        assert addresses(outside) == {"0": f"{PROXY_HOST}:{broker.port}"}
        assert addresses(broker.namesrv) == {"0": broker.address}
        send_and_consume(outside, "Outside")


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
@pytest.mark.parametrize("bind", ["::1", "::"])
def test_by_ipv6(tmp_path: Path, bind: str) -> None:
    """`::` serves IPv4 as well."""
    settings = {"bindAddress": bind, "brokerIP1": "::1", "haAddresses": "::1"}
    with running_broker(settings, store=tmp_path / "store") as broker:
        namesrv = f"[::1]:{broker.namesrv_port}"
        assert addresses(namesrv) == {"0": f"[::1]:{broker.port}"}
        send_and_consume(namesrv, "Six")
        if bind == "::":
            send_and_consume(broker.namesrv, "Both")
            assert addresses(broker.namesrv) == {"0": f"[::1]:{broker.port}"}


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
def test_a_pair_by_ipv6(tmp_path: Path) -> None:
    (port, namesrv_port), (slave_port, _) = free_ports(), free_ports()
    six = SMALL | {"bindAddress": "::1", "haAddresses": "::1", "namesrvAddr": f"[::1]:{namesrv_port}"}
    namesrv = NameServer(tmp_path / "namesrv", 0, namesrv_port, tmp_path / "namesrv.log", {}, bind="::")
    master = LoneBroker(tmp_path / "master", port, namesrv_port, tmp_path / "master.log", six)
    as_slave = six | {"brokerRole": "SLAVE", "brokerId": "1"}
    slave = LoneBroker(tmp_path / "slave", slave_port, namesrv_port, tmp_path / "slave.log", as_slave)
    with contextlib.ExitStack() as stack:
        for process in (namesrv, master, slave):
            stack.callback(process.kill_all)
            process.start()
        own = f"[::1]:{namesrv_port}"
        send_and_consume(own, "Six")
        wait_until(
            lambda: [row["in_sync"] for row in ha_status(own) if "slave" in row] == ["yes"], "the slave has the log"
        )
        (followed,) = [row["follows"] for row in ha_status(own) if row.get("bid") == 1]
        assert followed == f"[::1]:{port}"
        assert addresses(f"127.0.0.1:{namesrv_port}") == {"0": f"[::1]:{port}", "1": f"[::1]:{slave_port}"}
