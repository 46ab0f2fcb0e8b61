"""Tests that send and read at once wait until readers see what was sent (tests/support/readers.py)."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

from rocketpy.client import Message, ProducerOptions
from rocketpy.client.options import ClientOptions
from rocketpy.client.sync import Producer
from rocketpy.spark.cluster import CLUSTERS
from tests.support.broker import RunningBroker
from tests.support.readers import behind_bytes, readable
from tests.support.wire import Wire


def test_a_wait_ends_when_readers_see_what_was_acknowledged(broker: RunningBroker) -> None:
    """The process that fills consume queues stands still while a message is sent."""
    cluster = CLUSTERS.get(ClientOptions(name_servers=broker.namesrv))

    def end() -> int:
        return sum(cluster.max_offsets(cluster.queues({"Late"})).values())

    with Producer("tests", ProducerOptions(name_servers=broker.namesrv, send_timeout=10)) as producer:
        readable([producer.send(Message("Late", b"0"))])
        assert end() == 1
        store = broker.workers()["store"]
        os.kill(store, signal.SIGSTOP)
        with ThreadPoolExecutor(1) as pool:
            try:
                sent = [producer.send(Message("Late", b"1"))]
                waiting = pool.submit(readable, sent)
                with Wire.open(broker.port) as wire:
                    assert behind_bytes(wire) > 0
                assert end() == 1, "a batch query would end before the message"
                assert not waiting.done()
            finally:
                os.kill(store, signal.SIGCONT)
            assert waiting.result() == sent and end() == 2
