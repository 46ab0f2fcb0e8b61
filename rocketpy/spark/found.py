"""The result of one step of a scan: the contract between the decoder and the code that finds rows."""

from __future__ import annotations

import contextlib
from typing import Any, Protocol

import attrs

from rocketpy.errors import CompressionError
from rocketpy.native import Status


@attrs.frozen
class Found:
    """Rows, and why the step ended.

    `status`: OK at the stop; FULL: a batch is complete; END_OF_FILE: a blank; EMPTY: zeros; INCOMPLETE: the record at
    `position` goes beyond the image; CORRUPT: there is no valid record at `position`.
    """

    status: Status
    position: int  # in the image
    records: int  # looked at
    rows: int
    compressed: int  # rows with a compressed body


class Rows(Protocol):
    """A finder of rows, which also makes columns of them; native_rows.py describes the methods."""

    def image(self, data: Any) -> contextlib.AbstractContextManager[Any]: ...

    def find(self, image: Any, start: int, position: int, stop: int) -> Found: ...

    def resync(self, image: Any, start: int, position: int, stop: int) -> int | None: ...

    def inflate(self, row: int) -> tuple[int, CompressionError | None]: ...

    def forget(self, first: int, count: int) -> None: ...

    def column(self, name: str, first: int, count: int) -> Any: ...
