"""Official clients, which know nothing of advertised addresses, behind NAT; and by IPv6."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.brokers import create_topic
from tests.interop.programs import Launcher
from tests.support.broker import free_ports, running_broker
from tests.support.forwarding import PROXY_HOST, forwarded, has_ipv6

QUEUES, COUNT = 2, 10


def send_and_consume(launcher: Launcher, language: str, topic: str) -> None:
    consumer = launcher.start(language, "push", topic=topic, group=f"{topic}_g")
    consumer.wait_until(lambda: consumer.queues, "queues")
    launcher.run(language, "send", topic=topic, group=f"{topic}_p", prefix="n", count=COUNT)
    consumer.wait_messages(COUNT)
    consumer.leave()
    assert len({message["key"] for message in consumer.messages}) == COUNT


@pytest.mark.parametrize("language", ["java-4.9.8", "java-5.3.3", "go"])
def test_outside_of_nat(tmp_path: Path, language: str) -> None:
    (outer, outer_namesrv), (_, named) = free_ports(), free_ports()
    settings = {"listeners": f"outside=127.0.0.1:{named}", "advertisedAddresses": f"outside={PROXY_HOST}:{outer}"}
    with running_broker(settings) as broker:
        create_topic(broker, "T", QUEUES)
        published = {outer: broker.port, outer - 2: broker.port - 2, outer_namesrv: named}
        with forwarded(published) as connections:
            launcher = Launcher(f"{PROXY_HOST}:{outer_namesrv}", tmp_path)
            try:
                send_and_consume(launcher, language, "T")
            finally:
                launcher.close()
            assert connections[outer] >= 2, "one of the producer, one of the consumer"


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
@pytest.mark.parametrize("language", ["java-4.9.8", "java-5.3.3", "go"])
def test_by_ipv6(tmp_path: Path, language: str) -> None:
    with running_broker({"bindAddress": "::", "brokerIP1": "::1"}) as broker:
        create_topic(broker, "T", QUEUES)
        launcher = Launcher(f"[::1]:{broker.namesrv_port}", tmp_path)
        try:
            send_and_consume(launcher, language, "T")
        finally:
            launcher.close()
