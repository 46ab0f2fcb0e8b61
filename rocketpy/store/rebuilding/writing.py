"""Puts queue files and index files together from the spool."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import attrs

from rocketpy.errors import DiskFull, StoreError
from rocketpy.native import Status
from rocketpy.native.core import ffi, lib

from ..files import file_name, translated
from ..formats.index_file import INDEX_NAME_DIGITS
from ..formats.unit import BLANKS, CQ_STORE_UNIT_SIZE
from ..replaced_file import replaced
from .planning import IndexPlan, QueueFile


@attrs.frozen
class WriteJob:
    """The settings that all files share."""

    target: Path
    spool: Path
    queue_file_size: int
    hash_slot_num: int
    index_num: int


def write_files(job: WriteJob, part: IndexPlan | Sequence[QueueFile]) -> int:
    """Write an index file, or some files of consume queues. Runs in a worker; a repetition writes the same.

    Returns: their keys or units.
    Raises:
        StoreError: a file cannot be read or written.
    """
    return _write_index_file(job, part) if isinstance(part, IndexPlan) else _write_queue_files(job, part)


def _write_queue_files(job: WriteJob, files: Sequence[QueueFile]) -> int:
    images: dict[str, mmap.mmap] = {}
    with contextlib.ExitStack() as stack:
        for file in files:
            for run in file.runs:
                if run.piece not in images:
                    images[run.piece] = stack.enter_context(_mapped(job.spool / f"{run.piece}.units"))
            _write_queue_file(job, file, images)
    return sum(file.units for file in files)


def _write_queue_file(job: WriteJob, file: QueueFile, images: dict[str, mmap.mmap]) -> None:
    directory = job.target / "consumequeue" / file.topic / str(file.queue_id)
    path = directory / file_name(file.number * job.queue_file_size)
    with translated(path, "write"):
        directory.mkdir(parents=True, exist_ok=True)
    with replaced(path) as out:
        out.truncate(job.queue_file_size)  # sparse after the last unit, as a broker leaves it
        at = 0
        for run in file.runs:
            _write_blanks(out, run.offset - at)
            first = run.at * CQ_STORE_UNIT_SIZE
            with memoryview(images[run.piece]) as whole, whole[first : first + run.count * CQ_STORE_UNIT_SIZE] as units:
                out.write(units)
            at = run.offset + run.count
        _write_blanks(out, file.end - at)
        out.flush()
        os.fsync(out.fileno())


def _write_blanks(out: BinaryIO, count: int) -> None:
    while count > 0:
        count -= out.write(BLANKS[: count * CQ_STORE_UNIT_SIZE]) // CQ_STORE_UNIT_SIZE


@contextlib.contextmanager
def _mapped(path: Path) -> Iterator[mmap.mmap]:
    with (
        translated(path, "read"),
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as image,
    ):
        yield image


def _write_index_file(job: WriteJob, plan: IndexPlan) -> int:
    name = f"{plan.name:0{INDEX_NAME_DIGITS}d}"
    private, path = job.spool / f"index-{name}-{os.getpid()}", job.target / "index" / name
    with translated(path, "write"):
        for leftover in private.glob("*"):  # of a task that was cut short
            leftover.unlink()
        index = lib.rp_index_open(os.fsencode(private), job.hash_slot_num, job.index_num)
        if index == ffi.NULL:
            raise StoreError(f"cannot make the index file {path}: {os.strerror(ffi.errno)}")
        try:
            _check(
                lib.rp_index_begin_file(index, plan.name, plan.previous_timestamp_ms, plan.previous_phy_offset), path
            )
            for span in plan.spans:
                with _mapped(job.spool / f"{span.piece}.keys") as image:
                    keys = ffi.from_buffer("rp_index_key[]", image)
                    _check(lib.rp_index_put_keys(index, keys + span.at, span.count), path)
                    ffi.release(keys)
            _check(lib.rp_index_sync(index), path)
        finally:
            lib.rp_index_close(index)
        path.parent.mkdir(parents=True, exist_ok=True)
        (private / name).replace(path)
        private.rmdir()
    return sum(span.count for span in plan.spans)


def _check(status: int, path: Path) -> None:
    if status != Status.OK:
        kind = DiskFull if status == Status.NO_SPACE else StoreError
        raise kind(f"cannot write {path}: {os.strerror(ffi.errno)}")
