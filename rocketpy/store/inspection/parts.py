"""Work on a store in parts that can run in several processes, or on several machines that see the same files.

The caller of a job chooses what runs the parts: `map`, or Spark (rocketpy/spark/jobs). A part of the log is a piece of
one of its files. Where a piece begins, a worker looks for the first record; so a piece may be planned without a look at
the log. A body can hold bytes that look like a record, even at the right offset. Pieces of a file that do not meet show
this, and are done again as one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import attrs

from rocketpy.native.core import lib

from ..files import FileInfo
from .findings import ProgressListener

RunParts = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
"""Calls the function with each part and gives the results in the order of the parts, as `map` does."""
NO_LIMIT = 1 << 63
SPLIT_BYTES = 256 << 20  # of the log, for one part


@attrs.frozen
class LogPiece:
    """The records of the file `name` that start at `begin` or later, and before `end`: phy offsets of any bytes."""

    name: str
    begin: int
    end: int

    @property
    def start(self) -> int:
        """Of the file."""
        return int(self.name)


class PieceResult(Protocol):
    """A worker's result for a piece."""

    @property
    def first(self) -> int: ...  # phy offset at which its first record starts

    @property
    def reached(self) -> int: ...  # phy offset at which the next piece must start; the file's end if nothing follows


def cut_log(infos: Sequence[FileInfo], split_bytes: int = SPLIT_BYTES, limit: int = NO_LIMIT) -> list[LogPiece]:
    """Pieces of about `split_bytes` of the files of a log; a broker may be writing after `limit`."""
    pieces = []
    for info in infos:
        start, end = int(info.name), int(info.name) + info.size
        places = [*range(start, end, split_bytes), end]
        pieces += [LogPiece(info.name, begin, stop) for begin, stop in itertools.pairwise(places)]
    return [attrs.evolve(piece, end=min(piece.end, limit)) for piece in pieces if piece.begin < limit]


def first_record(view: Any, size: int, piece: LogPiece) -> int:
    """Phy offset of the first record of a piece. A file begins with one; elsewhere it is looked for.

    Args:
        view: the file's bytes, as cffi has them, `size` of them.
    """
    if piece.begin == piece.start:
        return piece.begin
    before = piece.begin - 1 - piece.start
    return piece.begin - 1 + int(lib.rp_recovery_resync(view + before, size - before, piece.begin - 1))


def run_pieces(run: RunParts, work: Callable[[LogPiece], Any], pieces: Sequence[LogPiece]) -> list[Any]:
    """The results of the pieces. Those of one file that do not meet are done again, together, in this process."""
    done: list[tuple[LogPiece, PieceResult]] = []
    for planned, first_result in zip(pieces, run(work, pieces), strict=True):
        piece, result = planned, first_result
        if done and done[-1][0].name == piece.name and done[-1][1].reached != result.first:
            piece = LogPiece(piece.name, done.pop()[0].begin, piece.end)
            result = work(piece)
        done.append((piece, result))
    return [result for _, result in done]


def counted(listener: ProgressListener, what: str, run: RunParts) -> RunParts:
    """`run`, with the parts that are done told to the listener."""
    return partial(_run_counted, listener, what, run)


def _run_counted(
    listener: ProgressListener, what: str, run: RunParts, work: Callable[[Any], Any], parts: Sequence[Any]
) -> Iterator[Any]:
    listener.begin(what, len(parts), "parts")
    for done, result in enumerate(run(work, parts), 1):
        listener.reached(done)
        yield result
