"""Job archive with `--format delta`: the library `deltalake` (delta-rs) writes the files and the log of the table.

A position is an application transaction of the Delta protocol, whose version is a queue offset, or a phy offset of a
store's log. Of two runs that append the same rows, the protocol refuses the second commit only if the first one is
newer than the version that the second run has loaded. After each commit a run loads the newest version, with commits of
others; so `append` first compares the committed positions with those that this run goes by. Files that no commit names
are removed by a vacuum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import attrs
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from rocketpy.errors import StoreError

from .archive_files import sorted_by_day
from .table_archive import ROWS_SCHEMA, TableReport, check_free, without_password

PARTITIONS = ["topic", "dt"]
HOURS_PER_DAY = 24
SCHEMA = pa.schema([*ROWS_SCHEMA, pa.field("dt", pa.date32())])


@contextmanager
def _translated(uri: str) -> Iterator[None]:
    try:
        yield
    except CommitFailedError as error:
        raise StoreError(
            f"{uri}: another run has archived the same messages meanwhile: {without_password(error)}"
        ) from error
    except (DeltaError, OSError) as error:
        raise StoreError(f"{uri}: {without_password(error)}") from error


@attrs.define(eq=False)
class DeltaArchive:
    """An open table, as it was at its last commit."""

    uri: str
    table: DeltaTable
    report: TableReport = attrs.field(factory=TableReport)
    _known: dict[str, int | None] = attrs.field(init=False, factory=dict)  # positions that this run goes by

    @classmethod
    def opened(cls, uri: str, storage_options: Mapping[str, str]) -> Self:
        """Open a table, or make it.

        Raises:
            StoreError: it cannot be reached, or the directory is an archive of another format.
        """
        options = dict(storage_options)
        check_free(uri, "delta")
        with _translated(uri):
            if DeltaTable.is_deltatable(uri, options):
                return cls(uri, DeltaTable(uri, storage_options=options))
            return cls(uri, DeltaTable.create(uri, SCHEMA, partition_by=PARTITIONS, storage_options=options))

    def position(self, name: str) -> int | None:
        """The position that was committed under a name. `append` refuses rows if it has changed since."""
        self._known[name] = self.table.transaction_version(name)
        return self._known[name]

    def append(self, rows: Any, positions: Mapping[str, int]) -> None:
        """Commit rows and positions, both or none of them."""
        transactions = [Transaction(name, position) for name, position in positions.items()]
        for name, known in self._known.items():  # also those of the other kind of run: of a store, of topics
            if (at := self.table.transaction_version(name)) != known:
                raise StoreError(f"{self.uri}: another run has archived {name} up to {at} meanwhile")
        with _translated(self.uri):
            write_deltalake(
                self.table,
                sorted_by_day(rows).select(SCHEMA.names).cast(SCHEMA),
                mode="append",
                schema_mode="merge",
                writer_properties=WriterProperties(compression="ZSTD"),
                commit_properties=CommitProperties(app_transactions=transactions),
            )
            self.table.update_incremental()
        self._known |= positions
        self.report.rows += rows.num_rows
        self.report.commits += 1

    def compact(self) -> None:
        """Merge small files. Readers keep the version that they have opened.

        Files of topics whose paths are not ASCII stay as they are: Spark writes such a path unescaped, and delta-rs
        escapes it when it removes the file, so the rows would be there twice.
        """
        with _translated(self.uri):
            files = pa.table(self.table.get_add_actions(flatten=True)).select(["path", "partition.topic"]).to_pylist()
            left = sorted({file["partition.topic"] for file in files if not file["path"].isascii()})
            filters = [("topic", "not in", left)] if left else None
            self.report.merged_files += self.table.optimize.compact(filters)["numFilesRemoved"]

    def vacuum(self, days: int) -> None:
        """Remove files that no version of the last `days` days names. Older versions cannot be read any more."""
        with _translated(self.uri):
            hours = days * HOURS_PER_DAY
            removed = self.table.vacuum(hours, dry_run=False, enforce_retention_duration=False)
        self.report.vacuumed_files += len(removed)

    def done(self) -> TableReport:
        """The report of this run."""
        self.report.version = self.table.version()
        return self.report
