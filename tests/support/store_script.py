"""What golden scripts of the store can say: a real directory, written by the real append, dispatch, recovery, cleaning.

Everything printed is the same in every run: times come from the script, and names of index files, which are times of
the machine, are printed as index#1, index#2 in their order.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
import trio

from rocketpy.broker.managers.consumer_offset import ConsumerOffsetManager
from rocketpy.config import MessageStoreConfig
from rocketpy.errors import RocketError
from rocketpy.message.host import parse_host
from rocketpy.message.properties import decode_properties
from rocketpy.message.record import StoredRecord, decode_record
from rocketpy.remoting import fastjson, json_writer
from rocketpy.remoting.work import result_of
from rocketpy.store.files import DiskFiles, DiskUsage, file_name
from rocketpy.store.formats.index_file import INDEX_HEADER, INDEX_SLOT
from rocketpy.store.formats.unit import BLANK_SIZE, CQ_STORE_UNIT_SIZE
from rocketpy.store.inspection.dump import StoreDump, describe_damage, describe_entry, describe_unit, header_line
from rocketpy.store.inspection.reader import Damage
from rocketpy.store.inspection.verify import verify_store
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store
from rocketpy.store.services.cleaning import Cleaner
from tests.support.records import Record
from tests.support.store_writer import Put, StoreWriter, small_config, threads_without_time

BEGIN_MS = 1_700_000_000_000  # 2023-11-14 22:13:20 UTC
BOOT_ID_AT = 24
KINDS = {"prepared": 0x4, "commit": 0x8, "rollback": 0xC}
SETTINGS = {
    "log-size": "mapped_file_size_commit_log",
    "queue-size": "mapped_file_size_consume_queue",
    "slots": "max_hash_slot_num",
    "index-units": "max_index_num",
    "delete-when": "delete_when",
    "reserved-hours": "file_reserved_time",
}


class ScriptedDisk(DiskFiles):
    """A real disk whose fullness is as told."""

    used = 0.5

    def usage(self, path: Path) -> DiskUsage:
        free = round((1 - self.used) * (1 << 40))
        return DiskUsage(1 << 40, free, free)


class StoreScript:
    """One directory and one clock. `run` takes a command."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._changes: dict[str, object] = {}
        self._now_ms = BEGIN_MS
        self._opened: OpenedStore | None = None
        self._writer: StoreWriter | None = None
        self._disk = ScriptedDisk()

    def run(self, text: str) -> Iterable[str]:
        name, *words = shlex.split(text)
        arguments = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        command: Callable[..., Iterable[str] | None] = getattr(self, "do_" + name.replace("-", "_"))
        try:
            yield from command(*arguments, **{key.replace("-", "_"): value for key, value in options.items()}) or ()
        except RocketError as exc:
            yield f"error: {str(exc).replace(str(self._root), 'STORE')}"

    def close(self) -> None:
        self._leave(clean=False)

    # --- the broker's life ---

    @property
    def _config(self) -> MessageStoreConfig:
        return small_config(self._root, **self._changes)

    @property
    def _store(self) -> OpenedStore:
        assert self._opened is not None, "the script has not opened the store"
        return self._opened

    def _leave(self, *, clean: bool) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._opened is not None:
            opened, self._opened = self._opened, None
            close_store(opened, clean=clean)

    def do_config(self, **options: str) -> None:
        for key, value in options.items():
            name = SETTINGS[key.replace("_", "-")]
            self._changes[name] = value if name == "delete_when" else int(value)

    def do_open(self) -> Iterator[str]:
        self._opened = open_store(self._config)
        self._writer = StoreWriter(self._config, self._opened.control)
        self._writer.dispatch.run_to_end()
        report = self._opened.report
        yield (
            f"{report.kind.value}: log ends at {report.log_end}, {report.scanned_records} records scanned, "
            f"{report.queues_rebuilt} queues rebuilt"
        )

    def do_close(self) -> None:
        """In order."""
        self._flush()
        self._leave(clean=True)

    def do_kill(self) -> None:
        """kill -9 of everything: the page cache stays."""
        self._leave(clean=False)

    def do_flush(self) -> None:
        """What a flush of log and units covers is on the disk."""
        self._flush()

    def _flush(self) -> None:
        header = self._store.control.header
        header.durable_phy_offset = header.published_phy_offset
        header.physic_timestamp_ms = header.last_store_timestamp_ms
        assert self._writer is not None
        self._writer.dispatch.sync()

    def do_reboot(self) -> None:
        """Another kernel: what was not flushed may be anything."""
        self.do_kill()
        with (self._root / "control").open("r+b") as file:
            file.seek(BOOT_ID_AT)
            file.write(bytes(16))

    def do_clock(self, change: str) -> None:
        """+N milliseconds, or +Nh."""
        hours = change.endswith("h")
        self._now_ms += int(change.strip("+h")) * (3_600_000 if hours else 1)

    # --- messages ---

    def _record(self, queue: str, **options: str) -> Record:
        topic, _, queue_id = queue.rpartition("/")
        names = {"tags": "TAGS", "keys": "KEYS", "uniq": "UNIQ_KEY", "delay": "DELAY"}
        properties = "\x02".join(f"{name}\x01{options[key]}" for key, name in names.items() if key in options)
        sys_flag = KINDS.get(options.get("kind", ""), 0) | (2 if options.get("multi_tags") == "yes" else 0)
        return Record(
            topic=topic,
            body=b"." * int(options.get("body", "5")),
            properties=properties.encode(),
            queue_id=int(queue_id),
            sys_flag=sys_flag,
            flag=int(options.get("flag", "0")),
            born_timestamp_ms=self._now_ms,
            born_host=parse_host(options.get("born", "192.168.1.10:50000")),
            store_timestamp_ms=self._now_ms,
            store_host=parse_host(options.get("store", "10.0.0.1:10911")),
            prepared_transaction_offset=int(options.get("prepared_at", "0")),
        )

    def do_put(self, queue: str, **options: str) -> Iterator[str]:
        """body=SIZE tags= keys= uniq= delay= kind=prepared|commit|rollback count=N dispatch=no ..."""
        assert self._writer is not None
        puts: list[Put] = []
        for number in range(int(options.get("count", "1"))):
            texts = {key: value.replace("{n}", str(number)) for key, value in options.items()}
            puts += self._writer.put_records([self._record(queue, **texts)], dispatch=options.get("dispatch") != "no")
        yield from _put_lines(queue, puts)

    def do_batch(self, queue: str, **options: str) -> Iterator[str]:
        """As put, but all `count` of them as one batch."""
        assert self._writer is not None
        records = [self._record(queue, **options) for _ in range(int(options.get("count", "1")))]
        for put in self._writer.put_records(records):
            yield from _put_lines(queue, [put])

    def do_dispatch(self) -> None:
        assert self._writer is not None
        self._writer.dispatch.run_to_end()

    def do_begin(self, queue: str, offset: str) -> None:
        """The queue's next message gets this offset: what was before is not here (a slave's first file)."""
        topic, _, queue_id = queue.rpartition("/")
        self._store.control.add_queue(topic.encode(), int(queue_id)).next_offset = int(offset)

    # --- cleaning ---

    def do_age(self, pattern: str, hours: str) -> None:
        """The files were last written so many hours ago, by the script's clock."""
        for path in sorted(self._root.glob(pattern)):
            seconds = self._now_ms / 1000 - int(hours) * 3600
            os.utime(path, (seconds, seconds))

    def do_disk(self, percent: str) -> None:
        self._disk.used = int(percent.rstrip("%")) / 100

    def do_clean(self) -> Iterator[str]:
        control = self._store.control
        cleaner = Cleaner(self._config, control, self._disk, lambda: self._now_ms, threads_without_time())
        try:
            deleted = cleaner.clean()
            yield f"{deleted} log files deleted, log begins at {control.min_phy_offset}"
            if control.header.running_flags:
                yield f"flags {control.header.running_flags}: messages are refused"
        finally:
            cleaner.close()

    # --- damage ---

    def do_write(self, file: str, position: str, data: str) -> None:
        """Hex bytes at a position of a file."""
        with (self._root / self._real(file)).open("r+b") as image:
            image.seek(int(position))
            image.write(bytes.fromhex(data))

    def do_zero(self, file: str, position: str, size: str) -> None:
        self.do_write(file, position, "00" * int(size))

    def do_text(self, file: str, text: str) -> None:
        path = self._root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("\\t", "\t").replace("\\n", "\n"))

    def do_remove(self, file: str) -> None:
        path = self._root / self._real(file)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()

    # --- looking ---

    @property
    def _dump(self) -> StoreDump:
        return StoreDump(self._root)

    def _index_names(self) -> dict[str, str]:
        return {path.name: f"index#{number}" for number, (path, _) in enumerate(self._dump.index_headers(), 1)}

    def _named(self, text: str) -> str:
        for name, alias in self._index_names().items():
            text = text.replace(name, alias)
        return text

    def _real(self, file: str) -> str:
        """index/index#1 -> index/20260102030405678."""
        names = {alias: name for name, alias in self._index_names().items()} if "#" in file else {}
        parent, _, name = file.rpartition("/")
        return f"{parent}/{names.get(name, name)}".lstrip("/")

    def do_files(self) -> Iterator[str]:
        """Names and sizes; that of the control block is nobody's business."""
        names = self._index_names()
        for path in sorted(path for path in self._root.rglob("*") if path.is_file()):
            parent, name = path.parent.relative_to(self._root), path.name
            yield f"{parent}/{names.get(name, name)} {path.stat().st_size if name != 'control' else ''}".strip("./ ")

    def do_records(self, start: str = "0") -> Iterator[str]:
        for found in self._dump.walk(int(start), check_crc=True):
            yield describe_damage(found).strip() if isinstance(found, Damage) else _record_line(found)

    def do_units(self, queue: str) -> Iterator[str]:
        topic, _, queue_id = queue.rpartition("/")
        blanks, file = 0, -1
        size = self._config.mapped_file_size_consume_queue
        for directory in self._dump.queues(topic, int(queue_id)):
            for offset, unit in self._dump.units(directory, blanks=True):
                if offset * CQ_STORE_UNIT_SIZE // size != file:
                    file = offset * CQ_STORE_UNIT_SIZE // size
                    yield f"{file_name(file * size)}:"
                blanks = blanks + 1 if unit.size == BLANK_SIZE else 0
                if blanks < 2:
                    yield "  " + " ".join(describe_unit(offset, unit).split())
                elif blanks == 2:
                    yield "  ..."

    def do_index(self) -> Iterator[str]:
        names = self._index_names()
        for path, header in self._dump.index_headers():
            assert header is not None
            yield header_line(path, header).replace(path.name, names[path.name])
            for entry in self._dump.index_entries(path, self._config.max_hash_slot_num):
                yield "  " + " ".join(describe_entry(entry).split())
            slots = path.read_bytes()[INDEX_HEADER.size :][: self._config.max_hash_slot_num * INDEX_SLOT.size]
            heads = enumerate(unit for (unit,) in INDEX_SLOT.iter_unpack(slots))
            yield "  slots " + " ".join(f"{slot}->{unit}" for slot, unit in heads if unit)

    def do_checkpoint(self) -> Iterator[str]:
        checkpoint = self._dump.state().checkpoint
        times = attrs.astuple(checkpoint) if checkpoint else ()
        names = ("log", "queues", "index")
        yield ", ".join(f"{name} {time}" for name, time in zip(names, times, strict=False)) or "none"

    def do_control(self) -> Iterator[str]:
        control = self._dump.state().control
        if control is None:
            yield "none"
            return
        yield (
            f"log {control.min_phy_offset} to {control.published_phy_offset}, durable {control.durable_phy_offset}, "
            f"dispatched {control.dispatched_phy_offset}, units durable {control.units_durable_phy_offset}, "
            f"{'clean' if control.is_clean else 'not clean'}"
        )
        for state in self._opened.control.queues() if self._opened else ():
            name, span = f"{state.topic}/{state.queue_id}", f"{state.min_offset} to {state.max_offset}"
            yield f"  {name}: {span}, next {state.next_offset}"

    def do_hex(self, file: str, position: str, size: str) -> Iterator[str]:
        image = (self._root / self._real(file)).read_bytes()[int(position) :][: int(size)]
        for at in range(0, len(image), 16):
            yield f"{int(position) + at:06x}: {image[at : at + 16].hex(' ')}"

    def do_is_zero(self, file: str, position: str) -> Iterator[str]:
        yield "zeros" if not any((self._root / file).read_bytes()[int(position) :]) else "not all zeros"

    def do_verify(self) -> Iterator[str]:
        report = verify_store(self._dump, slots=self._config.max_hash_slot_num)
        yield from (f"note: {self._named(note)}" for note in report.notes if "in use" not in note)
        yield from (self._named(str(problem)) for problem in report.problems)
        yield "damaged" if report.problems else "sound"

    # --- asking ---

    def _message_store(self) -> MessageStore:
        return MessageStore(self._config, self._store.control)

    def do_get(self, queue: str, offset: str, **options: str) -> Iterator[str]:
        topic, _, queue_id = queue.rpartition("/")
        store = self._message_store()
        result = store.get_message(topic, int(queue_id), int(offset), int(options.get("count", "32")))
        records = [decode_record(image) for image in result.records]
        offsets = " ".join(f"@{record.queue_offset}" for record in records if record)
        span = f"queue {result.min_offset} to {result.max_offset}"
        yield f"{result.status.value}, next {result.next_begin_offset}, {span}: {offsets}".rstrip(": ")
        store.close()

    def do_query(self, topic: str, key: str, **options: str) -> Iterator[str]:
        store = self._message_store()
        begin, end = int(options.get("begin", "0")), int(options.get("end", str(1 << 60)))
        for image in result_of(store.message_query(topic, key, 32, begin, end)).records:
            record = decode_record(image)
            assert record is not None
            yield _record_line(record)
        store.close()

    def do_offsets(self) -> Iterator[str]:
        """consumerOffset.json, or what is beside it."""
        offsets = json_writer.dumps(self._offsets().document())
        for key, queues in sorted(fastjson.loads(offsets)["offsetTable"].items()):
            yield f"{key}: { ({int(queue): offset for queue, offset in queues.items()}) }"

    def do_commit(self, group: str, topic: str, queue_id: str, offset: str) -> None:
        manager = self._offsets()
        manager.commit(group, topic, int(queue_id), int(offset))
        trio.run(manager.file.save)

    def _offsets(self) -> Any:
        manager = ConsumerOffsetManager(self._root / "config" / "consumerOffset.json")
        manager.load()
        return manager

    def do_cat(self, file: str) -> Iterator[str]:
        yield from (self._root / file).read_text().replace("\t", "  ").splitlines()


def _put_lines(queue: str, puts: list[Put]) -> Iterator[str]:
    first, last = puts[0], puts[-1]
    if len(puts) <= 2:
        yield from (f"{queue}@{put.queue_offset} at {put.phy_offset} size {put.size}" for put in puts)
    else:
        yield f"{queue}@{first.queue_offset} to @{last.queue_offset} at {first.phy_offset} to {last.phy_offset}"


def _record_line(record: StoredRecord) -> str:
    properties = decode_properties(record.properties.decode("utf-8", "replace"))
    born = f" born=[{record.born_host[0]}]" if record.sys_flag & 0x10 else ""
    store = f" store=[{record.store_host[0]}]" if record.sys_flag & 0x20 else ""
    prepared = f" prepared-at={record.prepared_transaction_offset}" if record.prepared_transaction_offset else ""
    text = "".join(f" {name}={value}" for name, value in properties.items())
    return (
        f"{record.phy_offset} size {record.size} {record.topic}/{record.queue_id}@{record.queue_offset} "
        f"stored=+{record.store_timestamp_ms - BEGIN_MS} flags=0x{record.sys_flag:x}{born}{store}{prepared} "
        f"body={len(record.body)}{text}"
    )
