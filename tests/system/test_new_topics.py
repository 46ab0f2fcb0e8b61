"""Connections that send at a rate of their own: only the first half messages of a broker take the slow path."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.bench.load import Load, Mode, Workload
from tests.support.broker import free_ports, running_broker
from tests.support.waiting import metric, wait_until

CONNECTIONS, IN_FLIGHT, RATE = 4, 1024, 10_000  # twice what a manager serves
SLOW = 'rocketpy_worker_slow_requests_total{worker="send"'


def test_connections_that_send_faster_than_the_manager_serves_leave_the_slow_path() -> None:
    """Fault: Connections that sent faster than the manager serves stayed on the slow path for as long as they sent."""
    port, _ = free_ports()
    with running_broker({"metricsPort": str(port)}) as broker:
        workload = Workload(Mode.SEND, CONNECTIONS, IN_FLIGHT, rate=RATE, in_transactions=True)
        with Load(workload, host="127.0.0.1", port=broker.port, topic="T", queues=4) as load:
            seen = [(0.0, 0)]

            def are_fast() -> bool:
                """Many sends were stored since the last look, and none of them took the slow path."""
                seen.append((metric(port, SLOW), int(load.stats().messages_ok)))
                (slow_before, stored_before), (slow, stored) = seen[-2:]
                return 0 < slow == slow_before and stored > stored_before + 100

            sender = threading.Thread(target=load.run, args=(300.0,))
            sender.start()
            try:
                wait_until(are_fast, "the fast path", pause_s=0.2)
            finally:
                load.stop()
                sender.join()
