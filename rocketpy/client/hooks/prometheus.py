"""Counters and histograms of sends and deliveries, by topic, group and result.

    from prometheus_client import start_http_server
    from rocketpy.client.hooks.prometheus import Prometheus

    start_http_server(8000)
    hook = Prometheus()  # one for all clients of the process: a registry takes each metric once
    options = ProducerOptions(hooks=(hook,))

`result` is the SendStatus (ONEWAY of a send without an answer), the action of the handler's ConsumeResult, or the class
of the exception.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

from ..results import ConsumeResult, SendResult
from .layer import ConsumeNext, Delivery, Hook, Sending, SendNext

LABELS = ("topic", "group", "result")
BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class Prometheus(Hook):
    """Counts messages, and measures sends and handler calls. Polled messages are counted only.

    Args:
        registry: gets the metrics `rocketpy_client_...`.
        buckets: upper bounds of both histograms, in seconds.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY, buckets: Sequence[float] = BUCKETS_S) -> None:
        self._sent = Counter("rocketpy_client_sent_messages", "Messages of sends.", LABELS, registry=registry)
        self._send_time = Histogram(
            "rocketpy_client_send_seconds",
            "Time of a send with its retries.",
            LABELS,
            registry=registry,
            buckets=buckets,
        )
        self._consumed = Counter("rocketpy_client_consumed_messages", "Messages received.", LABELS, registry=registry)
        self._handler_time = Histogram(
            "rocketpy_client_handler_seconds", "Time of a handler call.", LABELS, registry=registry, buckets=buckets
        )

    async def send(self, sending: Sending, call_next: SendNext) -> SendResult | None:
        begin_s, result = time.perf_counter(), "ONEWAY"
        try:
            if (sent := await call_next(sending.messages)) is not None:
                result = sent.status.value
            return sent
        except BaseException as error:
            result = type(error).__name__
            raise
        finally:
            labels = sending.messages[0].topic, sending.group, result
            self._sent.labels(*labels).inc(len(sending.messages))
            self._send_time.labels(*labels).observe(time.perf_counter() - begin_s)

    async def consume(self, delivery: Delivery, call_next: ConsumeNext) -> ConsumeResult:
        begin_s, result = time.perf_counter(), ""
        try:
            consumed = await call_next(delivery.messages)
            result = consumed.action.value
            return consumed
        except BaseException as error:
            result = type(error).__name__
            raise
        finally:
            labels = delivery.messages[0].topic, delivery.group, result
            self._consumed.labels(*labels).inc(len(delivery.messages))
            if not delivery.is_polled:
                self._handler_time.labels(*labels).observe(time.perf_counter() - begin_s)
