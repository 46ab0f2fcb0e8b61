"""What tests know of the formats of archives: how to open a table for an archive, and how others read it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Protocol

import boto3
import deltalake
import pyarrow.dataset
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from sqlalchemy.exc import OperationalError

from rocketpy.spark.jobs.archive_log import brokers_of
from rocketpy.spark.jobs.archived import files_by_topic, place_of
from rocketpy.spark.jobs.delta_archive import DeltaArchive
from rocketpy.spark.jobs.iceberg_archive import IcebergArchive
from rocketpy.store.inspection.reader import StoreReader

START_S = 60.0
BUCKET = "lake"
KEYS = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "tests-secret"}


class Format(Protocol):
    """A table format. Tables are named by a directory or a URL; `options` are those of `--storage-option`."""

    name: str

    def opened(self, target: str | Path, **options: str) -> Any:
        """The table, for an archive."""

    def rows(self, target: str | Path, version: int | None = None, **options: str) -> Any:
        """An Arrow table of all rows, as a reader of a version gets them; None if there is no table."""

    def files(self, target: str | Path) -> list[str]:
        """The Parquet files of the table."""

    def of_s3(self, url: str, directory: Path) -> dict[str, str]:
        """The options for an S3 server."""


class Delta:
    name: ClassVar[str] = "delta"

    def opened(self, target: str | Path, **options: str) -> DeltaArchive:
        return DeltaArchive.opened(str(target), options)

    def rows(self, target: str | Path, version: int | None = None, **options: str) -> Any:
        if not deltalake.DeltaTable.is_deltatable(str(target), options):
            return None
        return deltalake.DeltaTable(str(target), version, storage_options=options).to_pyarrow_table()

    def files(self, target: str | Path) -> list[str]:
        return list(deltalake.DeltaTable(str(target)).file_uris())

    def of_s3(self, url: str, directory: Path) -> dict[str, str]:
        return {"aws_endpoint": url, "aws_allow_http": "true", "aws_region": "us-east-1"}


class Iceberg:
    name: ClassVar[str] = "iceberg"

    def opened(self, target: str | Path, **options: str) -> IcebergArchive:
        return IcebergArchive.opened(str(target), options)

    def table(self, target: str | Path, **options: str) -> Any:
        """As a reader opens it, by its catalog."""
        given = options or {"uri": f"sqlite:///{target}/catalog.db", "init_catalog_tables": "false"}
        return load_catalog(**given).load_table(f"rocketmq.{Path(target).name}")

    def rows(self, target: str | Path, version: int | None = None, **options: str) -> Any:
        try:
            return self.table(target, **options).scan(snapshot_id=version).to_arrow()
        except NoSuchTableError:
            return None
        except OperationalError as error:  # any other than this one, like a lock, says nothing of the table
            if "no such table: iceberg_" not in str(error.orig):
                raise
            return None

    def files(self, target: str | Path) -> list[str]:
        tasks = self.table(target).scan().plan_files()
        return [task.file.file_path.removeprefix("file://") for task in tasks]

    def of_s3(self, url: str, directory: Path) -> dict[str, str]:
        return {"s3.endpoint": url, "s3.region": "us-east-1", "uri": f"sqlite:///{directory}/catalog.db"}


class Parquet:
    """An archive of Parquet files, which is no table: manifests name its files."""

    name: ClassVar[str] = "parquet"

    def rows(self, target: str | Path) -> Any:
        """As a reader of the directory gets them, who does not know of manifests; None if there is no archive."""
        if not any(brokers_of(Path(target)).values()):
            return None
        return pyarrow.dataset.dataset(str(target), format="parquet", partitioning="hive").to_table()

    def files(self, target: str | Path) -> list[str]:
        """The files that manifests name: those of a run that was killed are where it has left them."""
        named = files_by_topic(Path(target))
        return [
            str(place_of(Path(target), broker, file.path)[1])
            for broker, topics in named.items()
            for files in topics.values()
            for file in files
        ]


DELTA, ICEBERG, PARQUET = Delta(), Iceberg(), Parquet()
FORMATS: tuple[Format, ...] = (DELTA, ICEBERG)


def places(rows: Any) -> list[tuple[str, int]]:
    """(topic, phy offset) of each row, by the log's order."""
    if rows is None:
        return []
    pairs = zip(rows["topic"].to_pylist(), rows["physicalOffset"].to_pylist(), strict=True)
    return sorted(pairs, key=lambda row: row[1])


def logged(root: Path) -> list[tuple[str, int]]:
    return [(record.topic, record.phy_offset) for record in StoreReader(root).records()]


@contextmanager
def s3_server(directory: Path) -> Iterator[str]:
    """The URL of an S3 server with an empty bucket, whose keys are in this process's environment.

    It is moto's, in a process of its own; or the command in ROCKETPY_S3_SERVER, with `{port}` and `{directory}`, like
    `versitygw --access tests --secret tests-secret --port 127.0.0.1:{port} posix {directory}`.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (directory / "objects").mkdir()
    default = f"{sys.executable} -m moto.server -H 127.0.0.1 -p {port}"
    command = os.environ.get("ROCKETPY_S3_SERVER", default).format(port=port, directory=directory / "objects")
    url, before = f"http://127.0.0.1:{port}", {name: os.environ.get(name) for name in KEYS}
    with (directory / "s3.log").open("wb") as log:
        process = subprocess.Popen(command.split(), stdout=log, stderr=log)
    try:
        os.environ.update(KEYS)
        _wait_until_open(port, process, directory / "s3.log")
        boto3.client("s3", endpoint_url=url, region_name="us-east-1").create_bucket(Bucket=BUCKET)
        yield url
    finally:
        _restore(before)
        process.send_signal(signal.SIGKILL)
        process.wait()


def _wait_until_open(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + START_S
    while True:
        assert process.poll() is None and time.monotonic() < deadline_s, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)


def _restore(before: Mapping[str, str | None]) -> None:
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
