"""`python -m bench.store_jobs`: rebuild and audit of a store, beside dispatch and one walk in the same run.

A log is written here, with a key in each message. Then in turn: dispatch makes all queues and the index, as the broker
does; the job rebuilds them in this process, in a pool of processes, and on Spark; one walk in C checks the log; the
audit checks the whole store on Spark. The files of each rebuild are compared with those of dispatch.
"""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import statistics
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import click

from rocketpy.config import MessageStoreConfig
from rocketpy.message.record import encode_blank, encode_record
from rocketpy.spark.jobs.audit import audit
from rocketpy.spark.jobs.running import run_parts
from rocketpy.store.dispatch import Dispatch
from rocketpy.store.files import file_name
from rocketpy.store.inspection.findings import Findings, Inspected, NoListener
from rocketpy.store.inspection.log_check import LogCheck
from rocketpy.store.inspection.parts import RunParts
from rocketpy.store.inspection.reader import StoreReader
from rocketpy.store.inspection.state_files import read_state
from rocketpy.store.rebuilding.rebuild import rebuild
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store

from . import report
from .brokers import work_directory
from .spark_inputs import start_spark

PLACES = struct.Struct(">qq")  # queue offset and phy offset
PLACES_AT = 20
QUEUES = 16
NOW_MS = 1_700_000_000_000
HOST = ("10.0.0.1", 10911)
KEY_DIGITS = 16


@attrs.frozen
class Run:
    wall_s: float
    cpu_s: float  # of this process


@contextmanager
def timed(runs: list[Run]) -> Iterator[None]:
    began_s, cpu_s = time.monotonic(), time.process_time()
    yield
    runs.append(Run(time.monotonic() - began_s, time.process_time() - cpu_s))


@attrs.frozen
class Figure:
    what: str
    runs: list[Run]
    bytes: int

    @property
    def bytes_per_s(self) -> float:
        return self.bytes / statistics.median(run.wall_s for run in self.runs)

    @property
    def bytes_per_cpu_s(self) -> float:
        """Of work in this process alone: what other programs leave of the cores does not matter."""
        return self.bytes / statistics.median(run.cpu_s for run in self.runs)


def write_log(config: MessageStoreConfig, size: int, body: int) -> int:
    """Files of equal records, but for places and keys. Returns the number of records."""
    directory, file_size = Path(config.store_path_root_dir) / "commitlog", config.mapped_file_size_commit_log
    directory.mkdir(parents=True)
    records = [_record(queue, body) for queue in range(QUEUES)]
    each, count = len(records[0]), 0
    key_at = records[0].index(b"UNIQ_KEY\x01") + len(b"UNIQ_KEY\x01")
    for start in range(0, size, file_size):
        in_file = (file_size - 8) // each
        image = bytearray(b"".join(records) * (in_file // QUEUES + 1))[: in_file * each]
        for index in range(in_file):
            number, at = count + index, index * each
            # Each file begins with queue 0, so a queue's offsets count files, too.
            files, in_queue = start // file_size, -(-(in_file - index % QUEUES) // QUEUES)
            PLACES.pack_into(image, at + PLACES_AT, files * in_queue + index // QUEUES, start + at)
            image[at + key_at : at + key_at + KEY_DIGITS] = b"%016X" % number
        image += encode_blank(file_size - len(image))
        (directory / file_name(start)).write_bytes(image.ljust(file_size, b"\0"))
        count += in_file
    return count


def _record(queue: int, body: int) -> bytes:
    return encode_record(
        topic="bench",
        queue_id=queue,
        body=os.urandom(body),
        properties=b"TAGS\x01a\x02UNIQ_KEY\x01" + b"0" * KEY_DIGITS,
        born_timestamp_ms=NOW_MS,
        born_host=HOST,
        store_timestamp_ms=NOW_MS,
        store_host=HOST,
        queue_offset=0,
        phy_offset=0,
    )


def dispatch_anew(opened: OpenedStore, runs: list[Run]) -> None:
    """Dispatch makes all queues and the index from nothing, and brings them to the disk."""
    control, root = opened.control, opened.paths.root
    emptying = Dispatch(opened.config, control)
    for entry in control.entries():
        emptying.drop_queue(entry)
        entry.max_phy_offset = 0
    emptying.close()
    shutil.rmtree(root / "index", ignore_errors=True)
    control.header.dispatched_phy_offset = control.header.min_phy_offset
    with timed(runs):
        dispatch = Dispatch(opened.config, control)
        try:
            dispatch.run_to_end()
            dispatch.sync(with_index=True)
        finally:
            dispatch.close()


def rebuild_anew(config: MessageStoreConfig, target: Path, run: RunParts, runs: list[Run]) -> None:
    reader = StoreReader(Path(config.store_path_root_dir))
    with timed(runs):
        rebuild(reader, target, config, run)
    check_equal(reader.paths.root, target)
    shutil.rmtree(target)


def check_equal(root: Path, target: Path) -> None:
    """Raises AssertionError unless both have the same queues, and index files but for their names."""
    names = sorted(path.relative_to(root) for path in root.glob("consumequeue/*/*/*"))
    assert names and names == sorted(path.relative_to(target) for path in target.glob("consumequeue/*/*/*"))
    pairs = [(root / name, target / name) for name in names]
    pairs += zip(sorted((root / "index").iterdir()), sorted((target / "index").iterdir()), strict=True)
    for ours, other in pairs:
        assert filecmp.cmp(ours, other, shallow=False), f"{ours} and {other} differ"


def walk_log(root: Path, runs: list[Run]) -> None:
    """Walk once over the log in C, with CRC."""
    reader = StoreReader(root)
    state = read_state(reader.files, reader.paths)
    with timed(runs), LogCheck(Inspected(reader, state, Findings(root), NoListener())) as check:
        check.run()
        assert check.totals.records


def audit_on(spark: Any, root: Path, runs: list[Run]) -> None:
    with timed(runs):
        problems = audit(spark, root).problems
    assert not problems, problems[:3]


@contextmanager
def pool(workers: int) -> Iterator[RunParts]:
    with ProcessPoolExecutor(workers) as executor:

        def run(work: Callable[[Any], Any], parts: Sequence[Any]) -> Iterable[Any]:
            return executor.map(work, parts)

        yield run


def measure(config: MessageStoreConfig, size: int, repeat: int, workers: int) -> Iterator[Figure]:
    root = Path(config.store_path_root_dir)
    target = root.with_name("rebuilt")

    def repeated(what: str, work: Callable[[list[Run]], None]) -> Figure:
        runs: list[Run] = []
        for _ in range(repeat):
            work(runs)
        return Figure(what, runs, size)

    opened = open_store(config)  # its recovery has dispatched everything once
    try:
        yield repeated("dispatch of the broker, one process", partial(dispatch_anew, opened))
    finally:
        close_store(opened, clean=True)
    yield repeated("rebuild, one process", partial(rebuild_anew, config, target, map))
    with pool(workers) as run:
        rebuild_anew(config, target, run, [])
        yield repeated(f"rebuild, {workers} processes", partial(rebuild_anew, config, target, run))
    yield repeated("audit of the log, one walk in C", partial(walk_log, root))
    yield repeated("audit of the store, one process", partial(audit_on, None, root))
    first: list[Run] = []
    with timed(first):
        spark = start_spark(workers)
        rebuild_anew(config, target, partial(run_parts, spark), [])
    try:
        yield Figure(f"rebuild, Spark local[{workers}], session and first workers", first, size)
        on_spark = partial(run_parts, spark)
        yield repeated(f"rebuild, Spark local[{workers}]", partial(rebuild_anew, config, target, on_spark))
        yield repeated(f"audit, Spark local[{workers}]", partial(audit_on, spark, root))
    finally:
        spark.stop()


def in_process(figure: Figure) -> bool:
    return "one" in figure.what


def write_page(path: Path, about: str, found: Sequence[Figure]) -> None:
    """Write the figures as a page of bench/results."""

    def row(figure: Figure) -> tuple[str, ...]:
        cpu = report.number(figure.bytes_per_cpu_s / 1e6) if in_process(figure) else ""
        ratio = figure.bytes_per_s / found[0].bytes_per_s
        return figure.what, report.number(figure.bytes_per_s / 1e6), f"{ratio:.2f}", cpu

    headings = ("work", "MB of log per s", "of dispatch", "MB of log per CPU s")
    path.write_text(
        f"""{report.page_head("Rebuild and audit of a store", "bench.store_jobs")}

Log: {about}; the page cache is warm. Dispatch: a broker that starts without queues and index, one
process. Each rebuild equals its files byte for byte. Medians of the runs.

{report.markdown_table(headings, map(row, found))}
""",
        encoding="utf-8",
    )


@click.command()
@click.option("--gigabytes", default=10.0, help="of the log")
@click.option("--body", default=1024, help="bytes of each message")
@click.option("--repeat", default=3, help="runs of each measurement; the median counts")
@click.option("--workers", default=os.cpu_count() or 1, help="processes")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="write the figures")
@click.option("--docs", type=click.Path(path_type=Path), help="also write this page of bench/results")
def main(gigabytes: float, body: int, repeat: int, workers: int, json_path: Path | None, docs: Path | None) -> None:
    """Measure the rebuild and the audit of a store. Needs the extra spark and Java 17."""
    file_size = min(1 << 30, max(1 << 24, int(gigabytes * 1e8)))
    size = -(-int(gigabytes * 1e9) // file_size) * file_size
    load_average = os.getloadavg()[0]
    with work_directory("store-jobs") as directory:
        config = MessageStoreConfig(store_path_root_dir=str(directory / "store"), mapped_file_size_commit_log=file_size)
        records = write_log(config, size, body)
        about_log = f"{records} records with bodies of {body} bytes, {size / 1e9:.1f} GB; load {load_average:.1f}"
        click.echo(about_log)
        found = []
        for figure in measure(config, size, repeat, workers):
            found.append(figure)
            ratio = figure.bytes_per_s / found[0].bytes_per_s
            click.echo(
                f"{figure.what:56} {report.number(figure.bytes_per_s / 1e6):>8} MB/s {ratio:6.2f} of dispatch  "
                + (f"{report.number(figure.bytes_per_cpu_s / 1e6):>8} MB per CPU second" if in_process(figure) else "")
            )
    if docs is not None:
        write_page(docs, about_log, found)
    if json_path is not None:
        about = {"machine": report.machine(), "load": load_average, "records": records, "body": body}
        json_path.write_text(json.dumps({**about, "figures": [attrs.asdict(one) for one in found]}, indent=1))


if __name__ == "__main__":
    main()
