"""Job archive with `--format iceberg`: the library `pyiceberg` writes the files and the metadata of the table.

The positions of all queues are a property of each snapshot that a run makes, as JSON: a table that is rolled back goes
on from where the older snapshot was. A snapshot without them, of a compaction by another program, has those of its
parent. Other programs expire snapshots, too, so the table has the newest positions as well. They count if no snapshot
of the table's branch has any, and only while the table has as many rows as then: it was not rolled back, and nothing
but compactions has changed it.

pyiceberg itself repeats a commit that met another one, on top of the rows that were committed meanwhile. Here that
would be the same rows again, so a commit is tried once. If the positions are still as they were, another program has
maintained the table, and the run tries again; otherwise it fails.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import attrs
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TooManyRequestsError,
    ValidationException,
)
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files  # the latter is what Table.append writes with
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import DayTransform
from requests import ConnectionError as NoConnection
from requests import Timeout
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from rocketpy.errors import ConfigError, ConnectionLost, StoreError

from .archive_files import sorted_by_day
from .table_archive import MARKS, ROWS_SCHEMA, TableReport, check_free, without_password

NAMESPACE = "rocketmq"
CATALOG_FILE = MARKS["iceberg"]  # in the table's directory, unless options name a catalog
POSITIONS = "rocketpy.positions"  # of a snapshot, and of the table
ONCE = {"commit.retry.num-retries": "0"}
TRIES_MAX = 5
PROPERTIES = {
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",  # a table that is kept fresh has a commit each minute
    "commit.manifest-merge.enabled": "true",
}
MERGED_BYTES = 64 << 20  # of files that become one, compressed: their rows are in memory
NO_ANSWER = (
    NoConnection,
    Timeout,
    CommitStateUnknownException,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
)
"""A later run may reach the catalog. It reads the positions again, whether or not a commit was made meanwhile."""
LOCKED = (5, 6)  # SQLITE_BUSY and SQLITE_LOCKED, in the low byte of an error code
LOCK_WAIT_S = 5.0  # as long as pyiceberg waits


@contextmanager
def _translated(uri: str, catalog: str) -> Iterator[None]:
    """Raise errors of ours in place of those of pyiceberg; `catalog` is the URI of the table's catalog."""
    try:
        yield
    except (CommitFailedException, ValidationException) as error:
        raise StoreError(f"{uri}: another run has changed the table meanwhile: {without_password(error)}") from error
    except NO_ANSWER as error:
        raise ConnectionLost(f"{uri}: the catalog does not answer: {without_password(error)}") from error
    except DBAPIError as error:
        raise _error_of_database(uri, catalog, error) from error
    except (RESTError, SQLAlchemyError, OSError, ValueError) as error:
        raise StoreError(f"{uri}: {without_password(error)}") from error


def _error_of_database(uri: str, catalog: str, error: DBAPIError) -> ConnectionLost | StoreError:
    """Return the error of a run: a catalog that another program has locked will be free again."""
    # A query may hold a password as well.
    name = make_url(catalog).set(query={}).render_as_string() if catalog else "of pyiceberg's configuration"
    code, reason = getattr(error.orig, "sqlite_errorcode", None), without_password(error.orig or error)
    if code is not None and code & 0xFF in LOCKED:
        return ConnectionLost(f"{uri}: another program has locked the catalog {name}: {reason}")
    if code is None and isinstance(error, OperationalError):
        return ConnectionLost(f"{uri}: the catalog {name} does not answer: {reason}")
    return StoreError(f"{uri}: the catalog {name} cannot be read or written: {reason}")


def _check_catalog(target: Path) -> None:
    """Raise ConnectionLost or StoreError for a catalog that cannot be read, or that is gone while its table is there.

    pyiceberg takes any error for a catalog without tables, and makes them.
    """
    catalog = target / CATALOG_FILE
    if not catalog.exists() or catalog.stat().st_size == 0:
        if (target / "data").exists():
            raise StoreError(
                f"{target} has files of a table, and its catalog {catalog} is gone: restore it, or name another "
                "directory"
            )
        return
    opened = f"sqlite:///file:{quote(str(catalog))}?mode=rw&uri=true"
    engine = create_engine(opened, poolclass=NullPool, connect_args={"timeout": LOCK_WAIT_S})
    with _translated(str(target), f"sqlite:///{catalog}"), engine.connect() as connection:
        connection.execute(text("SELECT count(*) FROM sqlite_master"))


@attrs.define(eq=False)
class IcebergArchive:
    """An open table, as it was at its last commit."""

    uri: str
    table: Table
    positions: dict[str, int]
    report: TableReport = attrs.field(factory=TableReport)

    @classmethod
    def opened(cls, uri: str, options: Mapping[str, str], name: str | None = None) -> Self:
        """Open a table, or make it; give it columns that it lacks.

        Args:
            uri: the table's location, a directory or a URL.
            options: of pyiceberg's catalog and file systems. Without `uri` and `type` the catalog of a directory is an
                SQLite file in it, that of a URL the one of pyiceberg's configuration.
            name: of the table in the catalog; NAMESPACE and the last part of `uri` if it is None.
        Raises:
            ConfigError: no catalog is named. ConnectionLost: it does not answer. StoreError: it refuses, the directory
            is an archive of another format, or the table has rows and no positions.
        """
        identifier = tuple((name or f"{NAMESPACE}.{Path(uri).name}").rsplit(".", 1))
        location, properties = uri, dict(options)
        if is_local := "://" not in uri:
            path = Path(uri).absolute()
            check_free(uri, "iceberg")
            location = f"file://{path}"
        if is_local and not properties.keys() & {"uri", "type"}:
            with _translated(uri, ""):
                path.mkdir(parents=True, exist_ok=True)
            _check_catalog(path)
            properties["uri"] = f"sqlite:///{path / CATALOG_FILE}"
        with _translated(uri, properties.get("uri", "")):
            try:
                catalog = load_catalog(**properties)
            except ValueError as error:
                reason = f"{uri}: which catalog? {without_password(error)}"
                raise ConfigError(reason, key="--storage-option uri=...") from error
            catalog.create_namespace_if_not_exists(identifier[:-1])
            table = _loaded(catalog, identifier, location)
            with table.update_schema() as update:
                update.union_by_name(ROWS_SCHEMA)
            return cls(uri, table, _positions_of(table))

    @property
    def _catalog_uri(self) -> str:
        return str(self.table.catalog.properties.get("uri", ""))

    def position(self, name: str) -> int | None:
        """Return the position that was committed under a name."""
        return self.positions.get(name)

    def append(self, rows: Any, positions: Mapping[str, int]) -> None:
        """Commit rows and positions, both or none of them."""
        rows = sorted_by_day(rows).select(ROWS_SCHEMA.names).cast(ROWS_SCHEMA)
        after = {**self.positions, **positions}
        with _translated(self.uri, self._catalog_uri):
            for tries_left in reversed(range(TRIES_MAX)):
                try:
                    with self._once() as transaction:
                        transaction.append(rows, snapshot_properties=_summary(after))
                        transaction.set_properties(_kept(after, transaction.table_metadata.current_snapshot()))
                    break
                except CommitFailedException:
                    self.table.refresh()
                    if not tries_left or _positions_of(self.table) != self.positions:
                        raise
            self.table.refresh()
            if _positions_of(self.table) != after:  # a commit on top of it would append those rows again
                raise StoreError(f"{self.uri}: another run has archived messages meanwhile")
        self.positions = after
        self.report.rows += rows.num_rows
        self.report.commits += 1

    def compact(self) -> None:
        """Merge small files in one commit. Readers keep the snapshot that they have opened."""
        with _translated(self.uri, self._catalog_uri):
            groups = list(_groups(self.table))
            if not groups:
                return
            with (
                self._once() as transaction,
                transaction.update_snapshot(snapshot_properties=_summary(self.positions)).overwrite() as snapshot,
            ):
                for group in groups:
                    for task in group:
                        snapshot.delete_data_file(task.file)
                    scan = ArrowScan(self.table.metadata, self.table.io, self.table.schema(), AlwaysTrue())
                    rows = sorted_by_day(scan.to_table(group)).drop_columns(["dt"])
                    for file in _dataframe_to_data_files(self.table.metadata, rows, self.table.io):
                        snapshot.append_data_file(file)
            self.table.refresh()
        self.report.merged_files += sum(map(len, groups))

    def vacuum(self, days: int) -> None:
        """Expire snapshots older than `days` days, then remove the files that only they named."""
        with _translated(self.uri, self._catalog_uri):
            before = _files_of(self.table)
            oldest = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=days)
            self.table.maintenance.expire_snapshots().older_than(oldest).commit()
            self.table.refresh()
            unused = before - _files_of(self.table)
            for path in unused:
                with suppress(FileNotFoundError):  # by a vacuum beside this one
                    self.table.io.delete(path)
        self.report.vacuumed_files += len(unused)

    def done(self) -> TableReport:
        """Return the report of this run."""
        snapshot = self.table.current_snapshot()
        self.report.version = snapshot.snapshot_id if snapshot else 0
        return self.report

    def _once(self) -> Any:
        """Return a transaction that does not repeat its commit: it reads the limit from the properties of its table."""
        table = self.table
        metadata = table.metadata.model_copy(update={"properties": table.properties | ONCE})
        return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog).transaction()


def _loaded(catalog: Any, identifier: tuple[str, ...], location: str) -> Table:
    """Load the table; a new one is partitioned by topic and day in the commit that makes it."""
    try:
        return catalog.load_table(identifier)
    except NoSuchTableError:
        pass
    try:
        with (
            catalog.create_table_transaction(identifier, ROWS_SCHEMA, location, properties=PROPERTIES) as transaction,
            transaction.update_spec() as spec,
        ):
            spec.add_identity("topic")
            spec.add_field("storeTimestamp", DayTransform(), "dt")
    except (TableAlreadyExistsError, CommitFailedException):
        pass  # another run was first
    return catalog.load_table(identifier)


def _positions_of(table: Table) -> dict[str, int]:
    """Return the positions of the newest snapshot that has them. Raises StoreError."""
    current = snapshot = oldest = table.current_snapshot()
    while snapshot is not None:
        if snapshot.summary is not None and (text := snapshot.summary.additional_properties.get(POSITIONS)):
            found: dict[str, int] = json.loads(text)
            return found
        oldest = snapshot
        snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None
    if current is None or oldest is None:
        return {}
    kept, rows = json.loads(table.properties.get(POSITIONS, "{}")), _rows_of(current)
    if kept and rows is not None and kept["rows"] == rows and kept["sequence"] < (oldest.sequence_number or 0):
        return dict(kept["positions"])
    raise StoreError(
        f"{table.location()} has rows, and no snapshot says how far it is archived: the table is not of rocketpy, "
        "or another program has expired its snapshots after it has deleted or added rows. Name another table"
    )


def _summary(positions: Mapping[str, int]) -> dict[str, str]:
    return {POSITIONS: json.dumps(positions, separators=(",", ":"))}


def _kept(positions: Mapping[str, int], snapshot: Snapshot | None) -> dict[str, str]:
    """Return the property of a table after the commit of a snapshot."""
    assert snapshot is not None, "it is of a commit"
    kept = {"positions": positions, "sequence": snapshot.sequence_number or 0, "rows": _rows_of(snapshot)}
    return {POSITIONS: json.dumps(kept, separators=(",", ":"))}


def _rows_of(snapshot: Snapshot) -> str | None:
    """Return the number of rows that a snapshot notes; None if it notes none."""
    return snapshot.summary.additional_properties.get("total-records") if snapshot.summary is not None else None


def _groups(table: Table) -> Iterator[list[FileScanTask]]:
    """Small files of a partition that become one. Files with deleted rows are left to programs that delete rows."""
    partitions: dict[str, list[FileScanTask]] = {}
    for task in table.scan().plan_files():
        if task.file.file_size_in_bytes < MERGED_BYTES // 2 and not task.delete_files:
            partitions.setdefault(f"{task.file.spec_id} {task.file.partition}", []).append(task)
    for tasks in partitions.values():
        group, size = list[FileScanTask](), 0
        for task in sorted(tasks, key=lambda task: task.file.file_path):
            if group and size + task.file.file_size_in_bytes > MERGED_BYTES:
                if len(group) > 1:
                    yield group
                group, size = [], 0
            group.append(task)
            size += task.file.file_size_in_bytes
        if len(group) > 1:
            yield group


def _files_of(table: Table) -> set[str]:
    """Return all files that the table's snapshots name."""
    lists = {snapshot.manifest_list for snapshot in table.snapshots()}
    manifests = set(table.inspect.all_manifests()["path"].to_pylist())
    return lists | manifests | set(table.inspect.all_files()["file_path"].to_pylist())
