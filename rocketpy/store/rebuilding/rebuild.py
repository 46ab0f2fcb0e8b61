"""Rebuilds consume queues and index into a directory of their own."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from rocketpy.config import MessageStoreConfig
from rocketpy.errors import RecordCorrupt, StoreError

from ..files import Files, translated
from ..formats.unit import CQ_STORE_UNIT_SIZE, parse_delay_levels, rounded_file_size
from ..inspection.findings import ProgressListener
from ..inspection.parts import NO_LIMIT, SPLIT_BYTES, LogPiece, RunParts, counted, cut_log, run_pieces
from ..inspection.reader import StoreReader, guess_slots
from ..inspection.state_files import StoreState, read_deletions, read_state
from ..inspection.verify import NO_LISTENER
from ..replaced_file import durably_replaced
from .collecting import Collected, CollectJob, Damage, collect
from .planning import join_runs, pack_files, plan_index
from .writing import WriteJob, write_files

MANIFEST, SPOOL = "rebuilt.json", "rebuild.spool"  # the second marks a directory as ours, whose files may be removed
RESULTS = ("consumequeue", "index")
VERSION = 2


@attrs.frozen(kw_only=True)
class Rebuilt:
    """The result of a rebuild from the records in [log_begin, log_end)."""

    log_begin: int
    log_end: int
    last_phy_offset: int  # of the newest record, and its store time: the store is known by them again
    last_store_timestamp_ms: int
    records: int
    queues: int
    queue_files: int
    units: int
    index_files: int | None  # None: the broker has no index
    keys: int
    unplaced: int  # records that no queue can have
    cut_short: int  # records with more keys than the index takes
    resets: int  # of queues whose offsets jumped
    deletions_crc: int  # of the deleted queues that were left out
    damages: list[Damage]


def rebuild(
    reader: StoreReader,
    target: Path,
    config: MessageStoreConfig,
    run: RunParts,
    listener: ProgressListener = NO_LISTENER,
    *,
    split_bytes: int = SPLIT_BYTES,
    skip_damage: bool = False,
) -> Rebuilt:
    """Rebuild consume queues and index of a store, which is only read, into `target`.

    Args:
        target: a directory that is empty, or not there, or is left by a rebuild that was cut short.
        config: the sizes of files, messageDelayLevel, messageIndexEnable; the broker's.
        run: calls a function for each of many parts, as `map` does.
        split_bytes: of the log, for one part.
        skip_damage: go on after damaged records, as dispatch does. They are in the result.
    Raises:
        RecordCorrupt: damage. StoreError: the target has other files, or something cannot be read or written.
    """
    with _held(target):
        return _rebuild(reader, target, config, run, listener, split_bytes, skip_damage)


def _rebuild(
    reader: StoreReader,
    target: Path,
    config: MessageStoreConfig,
    run: RunParts,
    listener: ProgressListener,
    split_bytes: int,
    skip_damage: bool,
) -> Rebuilt:
    spool = _make_target(target)
    state = read_state(reader.files, reader.paths)
    pieces = _pieces(reader, state, split_bytes, skip_damage)
    levels = parse_delay_levels(config.message_delay_level)
    collecting = CollectJob(reader.paths.commitlog, spool, levels, config.message_index_enable)
    collected = run_pieces(counted(listener, "log", run), partial(collect, collecting), pieces)
    log_end, damages = _end_of(collected, pieces[0].begin if pieces else 0)
    if not skip_damage:
        _refuse(damages, reader.paths.root)
    file_size = rounded_file_size(config.mapped_file_size_consume_queue)
    writing = WriteJob(target, spool, file_size, config.max_hash_slot_num, config.max_index_num)
    deletions = read_deletions(reader.files, reader.paths)
    log_file_size = max((info.size for info in reader.log_files()), default=0)
    queues = join_runs(collected, spool, file_size // CQ_STORE_UNIT_SIZE, log_file_size, deletions)
    parts = pack_files(queues)
    indexes = plan_index(collected, spool, config.max_index_num - 1)
    # The index first: its files are few and large, and others are written beside them.
    written = list(counted(listener, "files", run)(partial(write_files, writing), [*indexes, *parts]))
    newest = max(collected, key=lambda piece: (piece.last_phy_offset, piece.records), default=None)
    result = Rebuilt(
        log_begin=pieces[0].begin if pieces else 0,
        log_end=log_end,
        last_phy_offset=newest.last_phy_offset if newest else 0,
        last_store_timestamp_ms=newest.last_store_timestamp_ms if newest else 0,
        records=sum(piece.records for piece in collected),
        queues=len(queues),
        queue_files=sum(map(len, parts)),
        units=sum(written[len(indexes) :]),
        index_files=len(indexes) if config.message_index_enable else None,
        keys=sum(written[: len(indexes)]),
        unplaced=sum(piece.unplaced for piece in collected),
        cut_short=sum(piece.cut_short for piece in collected),
        resets=sum(runs.resets for runs in queues.values()),
        deletions_crc=deletions_crc(deletions),
        damages=damages,
    )
    _write_manifest(reader.files, target, result)
    shutil.rmtree(spool)
    return result


def store_config(reader: StoreReader, given: MessageStoreConfig | None) -> MessageStoreConfig:
    """The configuration of the store's broker, if it is given; otherwise the sizes of the files that are there, and
    the reference's defaults.

    Raises:
        StoreError: the size of the index files does not say how many slots they have.
    """
    if given is not None:
        return given
    config = MessageStoreConfig(store_path_root_dir=str(reader.paths.root))
    sizes = (info.size for queue in reader.queues() for info in reader.queue_files(queue))
    if size := next(sizes, 0):
        config = attrs.evolve(config, mapped_file_size_consume_queue=size)
    headers = reader.index_headers()
    info = reader.files.info(headers[-1][0]) if headers else None
    if info is not None:
        slots = guess_slots(info.size)
        if slots is None:
            raise StoreError(
                f"{headers[-1][0]} has {info.size} bytes, of an unknown number of slots: give the broker's "
                "configuration (--config)"
            )
        config = attrs.evolve(config, max_hash_slot_num=slots, max_index_num=4 * slots)
    return config


def read_manifest(target: Path) -> Rebuilt:
    """Return the result of a complete rebuild in `target`.

    Raises:
        StoreError: there is none.
    """
    path = target / MANIFEST
    with translated(path, "read"):
        text = path.read_text(encoding="utf-8")
    try:
        fields: dict[str, Any] = json.loads(text)
        if fields.pop("version") != VERSION:
            raise StoreError(f"{path} is of another version of rocketpy: rebuild again")
        return Rebuilt(**fields | {"damages": [Damage(**one) for one in fields["damages"]]})
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error


def _make_target(target: Path) -> Path:
    """Remove what an earlier rebuild that was cut short has left. Returns the spool."""
    spool = target / SPOOL
    with translated(target, "write"):
        names = {name for name in os.listdir(target) if not name.startswith(f".{MANIFEST}.")}
        if names - {SPOOL, *RESULTS, MANIFEST} or (names and SPOOL not in names):
            raise StoreError(f"{target} is not empty: give a new directory")
        (target / MANIFEST).unlink(missing_ok=True)  # first: without it nothing is published
        for name in (*RESULTS, SPOOL):
            if name in names:
                shutil.rmtree(target / name)
        spool.mkdir()
    return spool


@contextmanager
def _held(target: Path) -> Iterator[None]:
    """Make the directory if it is not there, and hold it: a second rebuild would remove the files of the first.

    Raises:
        StoreError: another process holds it.
    """
    with translated(target, "write"):
        target.mkdir(parents=True, exist_ok=True)
        directory = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(f"{target}: another rebuild is using this directory") from None
        yield
    finally:
        os.close(directory)


def _pieces(reader: StoreReader, state: StoreState, split_bytes: int, skip_damage: bool) -> list[LogPiece]:
    infos = reader.log_files()
    for before, info in itertools.pairwise(infos):
        if int(before.name) + before.size != int(info.name) and not skip_damage:
            raise StoreError(
                f"{reader.paths.commitlog / before.name} has {before.size} bytes, and the next file is {info.name}: a "
                "file is missing or was cut short; --skip-damage goes on after it"
            )
    live = state.live_control
    return cut_log(infos, split_bytes, live.published_phy_offset if live else NO_LIMIT)


def _end_of(collected: Sequence[Collected], begin: int) -> tuple[int, list[Damage]]:
    """(end of the log, damage before it). Zeros and half a record that no record follows are the log's end."""
    damages = [damage for piece in collected for damage in piece.damages]
    with_records = [piece for piece in collected if piece.records]
    if not with_records:
        return begin, []
    end = with_records[-1].end
    return end, [damage for damage in damages if damage.phy_offset < end]


def _refuse(damages: Sequence[Damage], root: Path) -> None:
    if damages:
        raise RecordCorrupt(
            damages[0].phy_offset,
            f"{damages[0].reason}; {damages[0].size} bytes up to the next record, {len(damages)} such places in "
            f"{root}: rocketpy pipeline audit lists them, --skip-damage leaves them out",
        )


def deletions_crc(deletions: Mapping[tuple[str, int], int]) -> int:
    """Changes when a topic is deleted."""
    return zlib.crc32(repr(sorted(deletions.items())).encode())


def _write_manifest(files: Files, target: Path, result: Rebuilt) -> None:
    for directory, _, _ in os.walk(target):
        files.sync_directory(Path(directory))
    write_json(target / MANIFEST, {"version": VERSION, **attrs.asdict(result)})


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """Write a file that is either there as a whole, and on the disk, or not at all."""
    with durably_replaced(path) as file:
        file.write(json.dumps(value).encode())
