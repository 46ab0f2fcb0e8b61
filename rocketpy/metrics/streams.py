"""Metrics of streaming queries in Spark: `rocketpy pipeline run`, and StreamMetrics in sessions of users.

Short: the rows; rocketpy/spark/lag.py takes the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from .metric import Metric, Samples, counter, gauge
from .snapshot import StreamsSnapshot, UnreadSnapshot


def _spread(values: Callable[[UnreadSnapshot], Sequence[float]], *, with_sum: bool) -> Callable[..., Samples]:
    """Samples of a figure that each queue of a topic has."""

    def samples(snapshot: StreamsSnapshot) -> Iterator[tuple[Sequence[str], float]]:
        for one in snapshot.unread:
            if not (of_queues := values(one)):
                continue
            total = sum(of_queues)
            if with_sum:
                yield (one.query, one.topic, "sum"), total
            yield (one.query, one.topic, "min"), min(of_queues)
            yield (one.query, one.topic, "avg"), total / len(of_queues)
            yield (one.query, one.topic, "max"), max(of_queues)

    return samples


STREAM_METRICS: tuple[Metric[StreamsSnapshot], ...] = (
    gauge("rocketpy_spark_lag_messages", "query topic queues",
          "Unread messages: sum, min, avg and max of the topic's queues.",
          _spread(lambda one: one.messages, with_sum=True)),
    gauge("rocketpy_spark_lag_bytes", "query topic queues",
          "Bytes of the unread messages, estimated by the size of each queue's first one.",
          _spread(lambda one: one.sizes, with_sum=True)),
    gauge("rocketpy_spark_lag_seconds", "query topic queues",
          "Time since the first unread message of a queue was stored; 0: none.",
          _spread(lambda one: one.ages_s, with_sum=False)),
    counter("rocketpy_spark_rows", "query", "Rows read.",
            lambda s: [((name,), query.rows) for name, query in s.queries.items()]),
    gauge("rocketpy_spark_batch_seconds", "query", "Duration of the last micro-batch.",
          lambda s: [((name,), query.batch_s) for name, query in s.queries.items()]),
    gauge("rocketpy_spark_running", "query", "1 while the query runs; 0: it has ended or failed.",
          lambda s: [((name,), int(query.is_running)) for name, query in s.queries.items()]),
)  # fmt: skip
