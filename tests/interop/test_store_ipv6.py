"""Records of IPv6 hosts (20 bytes each, not 8), of mixed ones too, written by one broker and read by the other."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bench.control import Control
from rocketpy.bench.encoding import SEND_MESSAGE_V2, send_fields
from rocketpy.message.message_id import decode_offset_message_id
from rocketpy.store.inspection.dump import StoreDump
from tests.interop.brokers import AnyBroker, create_topic, max_offsets, running_target, wait_until
from tests.interop.store_filling import SMALL_FILES
from tests.interop.store_reading import decoded, differences, read_store, view
from tests.support.forwarding import has_ipv6

TOPIC, QUEUES = "six", 2
BORN_HOST_V6, STORE_HOST_V6 = 0x10, 0x20
SETTINGS = SMALL_FILES | {"brokerIP1": "::1"}
LISTENING = {"java": {}, "rocketpy": {"bindAddress": "::"}}
PER_HOST = 6


def send(broker: AnyBroker, host: str, prefix: str) -> list[str]:
    """Messages from one of this machine's addresses; their ids."""
    ids = []
    with Control(host, broker.port) as control:
        for number in range(PER_HOST):
            key = f"{prefix}-{number}"
            properties = f"KEYS\x01{key}\x02UNIQ_KEY\x01{key.upper()}\x02WAIT\x01true"
            born_ms = int(time.time() * 1000)
            fields = send_fields(TOPIC, number % QUEUES, properties, born_timestamp_ms=born_ms, batch=False)
            ids.append(control.check(SEND_MESSAGE_V2, fields, key.encode()).fields["msgId"])
    return ids


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
@pytest.mark.parametrize("writer", ["java", "rocketpy"])
def test_ipv6_hosts(tmp_path: Path, writer: str) -> None:
    store, reader = tmp_path / "store", "rocketpy" if writer == "java" else "java"
    ids: dict[str, str] = {}
    with running_target(writer, settings=SETTINGS | LISTENING[writer], store=store) as broker:
        create_topic(broker, TOPIC, QUEUES)
        for host in ("::1", "127.0.0.1"):
            ids |= dict.fromkeys(send(broker, host, host.replace(":", "v")), host)
        wait_until(lambda: sum(max_offsets(broker, TOPIC, QUEUES)) == 2 * PER_HOST, "all messages")
        written = read_store(broker, topics=(TOPIC,), groups=())
        broker.stop()
    assert StoreDump(store).verify().problems == []
    with running_target(reader, settings=SMALL_FILES, store=store) as broker:
        assert differences(read_store(broker, topics=(TOPIC,), groups=()), written) == []
        with Control("127.0.0.1", broker.port) as control:
            for message_id, born in ids.items():
                where = decode_offset_message_id(message_id)
                record = decoded(view(control, where.phy_offset))
                assert len(message_id) == 56 and where.store_host == record.store_host
                assert (record.store_host[0], record.born_host[0]) == ("::1", born)
                assert bool(record.sys_flag & BORN_HOST_V6) == (born == "::1")
                assert record.sys_flag & STORE_HOST_V6
        broker.stop()
