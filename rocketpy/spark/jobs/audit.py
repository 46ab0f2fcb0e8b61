"""Job audit: checks every record, unit and index entry of a store, as `rocketpy store verify` does, on many cores."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from rocketpy.errors import ConfigError
from rocketpy.store.inspection.findings import Code, ProgressListener
from rocketpy.store.inspection.parts import SPLIT_BYTES
from rocketpy.store.inspection.reader import StoreReader
from rocketpy.store.inspection.verify import NO_LISTENER, VerifyReport
from rocketpy.store.inspection.verify_parts import verify_in_parts
from rocketpy.store.replaced_file import durably_replaced

from .running import run_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


FINDINGS = pa.schema([("code", pa.string()), ("file", pa.string()), ("position", pa.int64()), ("text", pa.string())])


def fatal_codes(text: str) -> frozenset[Code]:
    """The codes in a list separated by commas; all of them if it is empty.

    Raises:
        ConfigError: a code that does not exist.
    """
    names = [name.strip().upper() for name in text.split(",") if name.strip()]
    if unknown := set(names) - set(Code):
        raise ConfigError(f"{sorted(unknown)[0]} is not a problem code. The codes: {', '.join(Code)}", key="--fail-on")
    return frozenset(Code(name) for name in names) or frozenset(Code)


def write_findings(report: VerifyReport, path: Path) -> None:
    """Write the problems as a Parquet file; `position` is -1 for a whole file.

    Raises:
        StoreError: it cannot be written.
    """
    rows = [{**attrs.asdict(problem), "code": str(problem.code)} for problem in report.problems]
    with durably_replaced(path) as file:
        pq.write_table(pa.Table.from_pylist(rows, FINDINGS), file)


def audit(
    spark: SparkSession | None,
    root: Path,
    *,
    commitlog: str = "",
    slots: int | None = None,
    split_bytes: int = SPLIT_BYTES,
    listener: ProgressListener = NO_LISTENER,
) -> VerifyReport:
    """Check a store. A task is a piece of the log, 256 queues, or an index file.

    Args:
        root: the store's directory, at the same path on every worker. It is never written.
        commitlog: the directory of the CommitLog, if it is not `root`/commitlog.
        slots: maxHashSlotNum, if it cannot be derived from the size of an index file.
        split_bytes: of the log, for one task.
    Raises:
        StoreError: something cannot be read at all.
    """
    reader = StoreReader(root.absolute(), commitlog)
    run = partial(run_parts, spark)
    return verify_in_parts(reader, run, listener, commitlog=commitlog, slots=slots, split_bytes=split_bytes)
