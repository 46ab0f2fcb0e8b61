"""From images of stored records to Arrow record batches: a log file, or the body of a pull's answer.

The work is done by the compiled core (native_rows.py).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import attrs
import pyarrow as pa

from rocketpy.errors import RecordCorrupt
from rocketpy.message.record import decode_record
from rocketpy.native import Status

from .columns import COLUMNS, arrow_schema
from .native_rows import NativeRows
from .scan import BadPlace, Checks, Found, Rows, Selection

logger = logging.getLogger(__name__)

BATCH_BYTES_MAX = 1 << 30  # of one batch's bodies: Arrow's offsets have 32 bits


@attrs.frozen
class RowOrder:
    """An order of rows. Its columns are decoded first, to compute the order; then all columns, in that order."""

    columns: tuple[str, ...]
    indices: Callable[[Any], Any]
    """Returns the numbers of the rows in their order, from a batch of these columns."""


@attrs.frozen
class End:
    """Why a scan ended, and where (`Found.status`, without FULL)."""

    status: Status
    position: int
    records: int


@attrs.define(eq=False)
class Decoder:
    """Decodes images to batches of the chosen columns. Not for several threads.

    Args:
        columns: names of `columns.COLUMNS`, in the order of the batches.
        constants: values of columns that are the same for the whole image; `decode` may override them.
        json_properties: the properties as one JSON text instead of a map.
        make_rows: tests put the codecs in Python in its place.
    """

    columns: tuple[str, ...]
    selection: Selection = attrs.field(factory=Selection)
    checks: Checks = attrs.field(factory=Checks)
    constants: Mapping[str, object] = attrs.field(factory=dict)
    json_properties: bool = False
    make_rows: Callable[[Selection, Checks, tuple[str, ...]], Rows] = NativeRows
    rows: Rows = attrs.field(init=False)
    schema: Any = attrs.field(init=False)
    undecodable: int = attrs.field(init=False, default=0)  # bodies that could not be inflated
    bad: list[BadPlace] | None = attrs.field(init=False, default=None)  # None: they are not collected
    order: RowOrder | None = attrs.field(init=False, default=None)  # None: as in the log

    def __attrs_post_init__(self) -> None:
        self.rows = self.make_rows(self.selection, self.checks, self.columns)
        self.schema = arrow_schema(self.columns, json_properties=self.json_properties)

    def decode(
        self, data: Any, start: int = 0, position: int = 0, stop: int | None = None, **constants: object
    ) -> Generator[Any, None, End]:
        """Record batches of the wanted records that start from `position` on and before `stop`.

        Args:
            data: bytes, or a mapped file; borrowed until the generator ends.
            start: phy offset of the first byte of `data`.
            stop: in `data`; its end by default. The last record is read past it.
            constants: as the field, for this image.
        Returns: why it ended; damage is not an error here.
        """
        records = 0
        with self.rows.image(data) as image:
            stop = len(image) if stop is None else stop
            while True:
                found = self.rows.find(image, start, position, stop)
                position = found.position
                records += found.records
                for first, count in self._parts(found):
                    yield self._batch(first, count, {**self.constants, **constants})
                if found.status is not Status.FULL:
                    return End(found.status, position, records)

    def resync(self, data: Any, start: int, position: int, stop: int) -> int | None:
        """Return the place of the first record at or after `position`; None if there is none before `stop`."""
        with self.rows.image(data) as image:
            return self.rows.resync(image, start, position, stop)

    def _parts(self, found: Found) -> Iterator[tuple[int, int]]:
        """(first row, rows) of each batch: more than one where inflated bodies would make it too large."""
        if not found.rows:
            return
        if not (found.compressed and self.checks.decompress and "body" in self.columns):
            yield 0, found.rows
            return
        first = size = 0
        limit = min(BATCH_BYTES_MAX, max(self.checks.bytes_max, 1))
        for row in range(found.rows):
            body_size, error = self.rows.inflate(row)
            if error is not None:
                self._count_undecodable(row, error)
            if row > first and size + body_size > limit:
                yield first, row - first
                self.rows.forget(first, row - first)  # all together may be thousands of times what was read
                first, size = row, 0
            size += body_size
        yield first, found.rows - first

    def _count_undecodable(self, row: int, error: Exception) -> None:
        self.undecodable += 1
        if self.bad is not None:
            place, size = (self.rows.column(name, row, 1)[0].as_py() for name in ("physicalOffset", "storeSize"))
            self.bad.append(BadPlace(place, size, str(error)))
        if self.undecodable == 1:
            logger.error("cannot decompress a message body: %s; such bodies are delivered as stored", error)

    def _batch(self, first: int, count: int, constants: Mapping[str, object]) -> Any:
        if self.order is not None:
            columns = self.order.columns
            keys = [self._array(name, first, count, constants) for name in columns]
            self.rows.arrange(first, self.order.indices(pa.RecordBatch.from_arrays(keys, list(columns))))
        arrays = [self._array(name, first, count, constants) for name in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, name: str, first: int, count: int, constants: Mapping[str, object]) -> Any:
        if name in constants:
            return pa.repeat(pa.scalar(constants[name], COLUMNS[name].arrow), count)
        array = self.rows.column(name, first, count)
        if name == "properties" and self.json_properties:
            return pa.array([json.dumps(dict(pairs), ensure_ascii=False) for pairs in array.to_pylist()], pa.string())
        return array


def fault_at(data: Any, start: int, position: int, checks: Checks) -> str:
    """Return the fault of the bytes at `position` as text, found by the codecs in Python."""
    try:
        with memoryview(data) as view, view[position:] as image:
            record = decode_record(image, start + position, check_crc=checks.crc)
    except RecordCorrupt as error:
        return error.reason
    if record is None:
        return "the log ends here"
    if record.size > checks.record_size_max:
        return f"size is {record.size}, at most {checks.record_size_max} are read (option maxMessageSize)"
    return f"its own offset is {record.phy_offset}, but it is at {start + position}"
