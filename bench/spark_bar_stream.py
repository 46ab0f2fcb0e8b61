"""The row `steady` of `python -m bench.spark_bars`: a stream at a steady rate, from the store to committed files."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rocketpy.bench import proc
from rocketpy.bench.load import Load, Mode, Workload
from rocketpy.bench.own_broker import HOST

from .brokers import Broker
from .spark_bar_inputs import Inputs, Line
from .spark_inputs import QUEUES, SIZES

RATE = 20_000
TOPIC = "steady"
P99_BAR_S, CPU_BAR = 2.5, 60.0
CORES = 2


def ask_steady(inputs: Inputs) -> Iterator[Line]:
    """20 000 messages/s of 1 KiB, a trigger each second, Parquet: age of a message when its file is committed."""
    spark, broker, out = inputs.spark, inputs.broker, inputs.directory / "steady"
    broker.create_topic(TOPIC, QUEUES)
    given = {"nameServer": f"{HOST}:{broker.namesrv_port}", "topic": TOPIC, "startingOffsets": "earliest"}
    stream = spark.readStream.format("rocketmq").options(**given).load().writeStream.format("parquet")
    stream = stream.option("path", str(out / "data")).option("checkpointLocation", str(out / "checkpoint"))
    query = stream.trigger(processingTime="1 second").start()
    windows, window_s = inputs.windows
    edges_ms, cpu_s = [], []
    try:
        with SteadyLoad(broker, inputs.warm_up_s + windows * window_s + 1):
            time.sleep(inputs.warm_up_s)
            for _ in range(windows + 1):
                edges_ms.append(time.time() * 1000)
                cpu_s.append((cpu_by_process([inputs.jvm]), cpu_by_process(broker.roots)))
                time.sleep(window_s if len(edges_ms) <= windows else 0)
        query.processAllAvailable()
    finally:
        query.stop()
    ages = ages_by_window(out / "data", edges_ms)
    yield Line("steady", "store to committed, p99", "s", tuple(_quantile(one, 0.99) for one in ages), P99_BAR_S, True)
    yield Line("steady", "store to committed, p50", "s", tuple(_quantile(one, 0.5) for one in ages))
    yield Line("steady", "CPU of the query", "%", _shares(cpu_s, 0, window_s), CPU_BAR, True)
    yield Line("steady", "CPU of the broker", "%", _shares(cpu_s, 1, window_s))
    yield Line("steady", "messages", "/s", tuple(len(one) / window_s for one in ages))


class SteadyLoad:
    """Sends in a thread as long as the block lasts. Raises: AssertionError: not all sends were stored."""

    def __init__(self, broker: Broker, seconds: float) -> None:
        workload = Workload(Mode.SEND, 8, 64, SIZES["1 KiB"], rate=RATE)
        self.load = Load(workload, host=HOST, port=broker.port, topic=TOPIC, queues=QUEUES)
        self.found: list[Any] = []
        self.thread = threading.Thread(target=lambda: self.found.append(self.load.measure(seconds)))

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.thread.join()
        self.load.close()
        assert self.found and self.found[0].is_clean, self.found


def cpu_by_process(roots: list[int]) -> dict[int, float]:
    """Seconds of each process of the trees. PySpark ends workers that are idle, and their time with them."""
    return {pid: proc.own_cpu_s(pid) for root in roots for pid in proc.tree(root)}


def _shares(
    cpu_s: Sequence[tuple[dict[int, float], dict[int, float]]], which: int, window_s: float
) -> tuple[float, ...]:
    """CPU time of each window in percent of the cores, of the processes that are there at its end."""
    used = [
        sum(seconds - before[which].get(pid, 0.0) for pid, seconds in after[which].items())
        for before, after in itertools.pairwise(cpu_s)
    ]
    return tuple(seconds / window_s / CORES * 100 for seconds in used)


def committed_ms(data: Path) -> dict[Path, float]:
    """Return the files of Spark's sink, and when the log of their batch was written (ms since 1970)."""
    logs = [path for path in (data / "_spark_metadata").iterdir() if path.name.split(".")[0].isdigit()]
    found: dict[Path, float] = {}
    for log in sorted(logs, key=lambda path: int(path.name.split(".")[0])):  # N.compact also has all before N
        for line in log.read_text().splitlines()[1:]:
            file = Path(url2pathname(urlsplit(json.loads(line)["path"]).path))
            found.setdefault(file, log.stat().st_mtime * 1000)
    return found


def ages_by_window(data: Path, edges_ms: Sequence[float]) -> list[Any]:
    """Seconds from its storage to its commit of each message stored in a window, as an array for each window."""
    ages: list[list[Any]] = [[] for _ in edges_ms[1:]]
    for file, at_ms in committed_ms(data).items():
        stored = pq.read_table(file, columns=["storeTimestamp"])["storeTimestamp"]
        stored_ms = pc.cast(pc.cast(stored, pa.timestamp("ms", tz="UTC"), safe=False), pa.int64())
        for kept, begin, end in zip(ages, edges_ms, edges_ms[1:], strict=False):
            within = pc.filter(stored_ms, pc.and_(pc.greater_equal(stored_ms, begin), pc.less(stored_ms, end)))
            kept += pc.divide(pc.subtract(float(at_ms), within), 1000.0).chunks
    return [pa.chunked_array(one, pa.float64()) for one in ages]


def _quantile(values: Any, q: float) -> float:
    return float(pc.quantile(values, q)[0].as_py())
