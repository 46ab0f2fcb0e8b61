"""The fast path in one process and one thread: codec, send, dispatch and pull on real rings and a real store.

Nothing runs by itself: each step is a call, so a test decides what has happened when. Selectors and the manager are
played by the test: it hands frames to the codec, and reads what comes out for connections and for the manager.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rocketpy.broker.fast_path.filter_messages import SUBSCRIPTION
from rocketpy.native.core import ffi, lib
from rocketpy.reactor.worker_messages import (
    BROKER,
    PULL_REQUEST,
    SEND_REQUEST,
    TABLES_END,
    encode_completed,
    encode_group,
    encode_topic,
    token_of,
)
from rocketpy.remoting.command import RemotingCommand
from tests.support import ring_messages
from tests.support.shared_memory import remove_ring, remove_slots, remove_worker, suspension_slots, worker_block

TURN_NS = 0  # a run with this timeout makes a pass or two and returns

FILE_SIZE = 8 * 1024 * 1024
CQ_FILE_SIZE = 6_000
EXT_FILE_SIZE = 4_096


class Clock:
    """CLOCK_MONOTONIC of a worker; `pointer` is its clock_ns. It stands still but for what the test adds."""

    def __init__(self) -> None:
        self.now_ns = 10**10
        self.pointer = ffi.callback("uint64_t(void)", lambda: self.now_ns)


class FastPath:
    """One selector's worth of connections in front of an inline codec."""

    def __init__(
        self,
        root: Path,
        pull_options: dict[str, Any] | None = None,
        *,
        is_extended: bool = False,
        file_size: int = FILE_SIZE,
        cq_file_size: int = CQ_FILE_SIZE,
        filter_marks: Any = ffi.NULL,
        ring_bytes: int = 1 << 18,
        **send_options: Any,
    ) -> None:
        """`is_extended`: the tags codes are in extension units; with `filter_marks` they have filter bits."""
        self.root, self.ring_bytes = root, ring_bytes
        self.file_size, self.cq_file_size = file_size, cq_file_size
        self.is_extended, self.filter_marks = is_extended, filter_marks
        (root / "commitlog").mkdir(parents=True, exist_ok=True)
        (root / "consumequeue").mkdir(exist_ok=True)
        (root / "index").mkdir(exist_ok=True)
        self._keep: list[Any] = []
        self._made: list[Any] = []  # rings
        self.workers = {
            name: worker_block(index)
            for index, name in enumerate(("selector", "send", "pull", "manager", "store", "codec"))
        }
        self.block = lib.rp_control_open(str(root / "control").encode(), file_size)
        assert self.block != ffi.NULL
        ring = self._ring
        self.to_send, self.to_pull, self.to_manager = (
            ring("selector", "send"),
            ring("selector", "pull"),
            ring("selector", "manager"),
        )
        self.send_replies, self.pull_replies = ring("send", "selector"), ring("pull", "selector")
        self.codec_replies = ring("selector", "selector")
        self.send_manager, self.manager_send = ring("send", "manager"), ring("manager", "send")
        self.pull_manager, self.manager_pull = ring("pull", "manager"), ring("manager", "pull")
        self.store_pull, self.store_send = ring("store", "pull"), ring("store", "send")
        self.suspended = suspension_slots(100)
        self.send_options = send_options
        self.pull_options = pull_options or {}
        self.codec_options: dict[str, Any] = {}
        self.frames = ring("selector", "codec")
        self.codec = self.open_codec()
        self.send = self.open_send()
        self.pull = self.open_pull()
        self.dispatch = self.open_dispatch()
        self.replies = [lib.rp_ring_reader_open(r) for r in (self.send_replies, self.pull_replies, self.codec_replies)]
        self.left_to_manager = [
            lib.rp_ring_reader_open(r) for r in (self.to_manager, self.send_manager, self.pull_manager)
        ]
        self.manager_to_send = lib.rp_ring_writer_open(self.manager_send)
        self.manager_to_pull = lib.rp_ring_writer_open(self.manager_pull)

    def close(self) -> None:
        """Give descriptors and mappings back: a crash generator has thousands of rigs. Ask nothing of it any more."""
        lib.rp_send_close(self.send)
        lib.rp_pull_close(self.pull)
        lib.rp_codec_close(self.codec)
        lib.rp_dispatch_close(self.dispatch)
        lib.rp_control_close(self.block)
        for reader in (*self.replies, *self.left_to_manager):
            lib.rp_ring_reader_close(reader)
        for writer in (self.manager_to_send, self.manager_to_pull):
            lib.rp_ring_writer_close(writer)
        for ring in self._made:
            remove_ring(ring)
        remove_slots(self.suspended)
        for worker in self.workers.values():
            remove_worker(worker)

    def _ring(self, producer: str, consumer: str) -> Any:
        ring = lib.rp_ring_create(self.ring_bytes, self.workers[producer], self.workers[consumer])
        assert ring != ffi.NULL
        self._made.append(ring)
        return ring

    def renew_store_ring(self) -> None:
        """The ring of timers is empty, as after the death of the whole broker."""
        self.store_send = self._ring("store", "send")

    def _string(self, text: str) -> Any:
        value = ffi.new("char[]", text.encode())
        self._keep.append(value)
        return value

    def _rings(self, *rings: Any) -> Any:
        value = ffi.new("rp_ring *[]", rings)
        self._keep.append(value)
        return value

    def open_codec(self, *inputs: Any) -> Any:
        """One inside the selector, or with `inputs` one that reads frames from rings."""
        routes = ffi.new("rp_route[]", [(10, 0), (310, 0), (320, 0), (11, 1), (361, 1), (37, 0)])
        self._keep.append(routes)
        config = ffi.new(
            "rp_codec_config *",
            {
                "worker": self.workers["codec" if inputs else "selector"],
                "input_count": len(inputs),
                "inputs": self._rings(*inputs) if inputs else ffi.NULL,
                "pull_count": 1,
                "selector_count": 1,
                "route_count": 6,
                "send": self.to_send,
                "manager": self.to_manager,
                "pulls": self._rings(self.to_pull),
                "selectors": self._rings(self.codec_replies),
                "routes": routes,
                "version": 409,
            }
            | self.codec_options,
        )
        return lib.rp_codec_open(config)

    def open_send(self) -> Any:
        options: dict[str, Any] = {
            "worker": self.workers["send"],
            "store": self.workers["store"],
            "block": self.block,
            "commitlog_directory": self._string(str(self.root / "commitlog")),
            "consume_queue_directory": self._string(str(self.root / "consumequeue")),
            "consume_queue_file_size": self.cq_file_size,
            "input_count": 1,
            "selector_count": 1,
            "inputs": self._rings(self.to_send),
            "from_manager": self.manager_send,
            "to_manager": self.send_manager,
            "selectors": self._rings(self.send_replies),
            "cluster_property": self._string("CLUSTER\x01DefaultCluster"),
            "region": self._string("DefaultRegion"),
            "version": 409,
            "trace_on": 1,
            "max_message_size": 4 * 1024 * 1024,
            "sync_flush": 0,
            "fast_failure": 0,
            "sync_flush_timeout_ms": 5000,
            "wait_time_in_queue_ms": 200,
        }
        if "timers" in self.send_options:
            options["from_store"] = self.store_send
        config = ffi.new("rp_send_config *", options | self.send_options)
        config.store_host.address[0:4] = [127, 0, 0, 1]
        config.store_host.port, config.store_host.family = 10911, 4
        send = lib.rp_send_open(config)
        assert send != ffi.NULL
        return send

    def open_pull(self) -> Any:
        config = ffi.new(
            "rp_pull_config *",
            {
                "worker": self.workers["pull"],
                "store": self.workers["store"],
                "block": self.block,
                "consume_queue_directory": self._string(str(self.root / "consumequeue")),
                "consume_queue_file_size": self.cq_file_size,
                "consume_queue_ext_file_size": EXT_FILE_SIZE,
                "files_max": 64,
                "suspended": self.suspended,
                "input_count": 1,
                "selector_count": 1,
                "inputs": self._rings(self.to_pull),
                "from_manager": self.manager_pull,
                "from_store": self.store_pull,
                "to_manager": self.pull_manager,
                "selectors": self._rings(self.pull_replies),
                "version": 409,
                "is_slave": 0,
                "slave_read_enable": 0,
                "long_polling": 1,
                "fast_failure": 0,
                "short_polling_ms": 1000,
                "wait_time_in_queue_ms": 5000,
                "bytes_in_memory": 262144,
                "count_in_memory": 32,
                "bytes_on_disk": 65536,
                "count_on_disk": 8,
                "memory_bytes": 1 << 40,
                "marks": self.filter_marks,
            }
            | self.pull_options,
        )
        pull = lib.rp_pull_open(config)
        assert pull != ffi.NULL
        return pull

    def open_dispatch(self) -> Any:
        config = ffi.new(
            "rp_dispatch_config *",
            {
                "commitlog_directory": self._string(str(self.root / "commitlog")),
                "consume_queue_directory": self._string(str(self.root / "consumequeue")),
                "index_directory": self._string(str(self.root / "index")),
                "consume_queue_file_size": self.cq_file_size,
                "consume_queue_files_max": 64,
                "consume_queue_ext_enable": self.is_extended,
                "consume_queue_ext_file_size": EXT_FILE_SIZE,
                "index_enable": 0,
                "hash_slot_num": 1000,
                "index_num": 4000,
                "filter_marks": self.filter_marks,
            },
        )
        dispatch = lib.rp_dispatch_open(self.block, config)
        assert dispatch != ffi.NULL
        lib.rp_dispatch_set_pulls(
            dispatch, ffi.new("rp_ring_writer *[]", [lib.rp_ring_writer_open(self.store_pull)]), 1
        )
        return dispatch

    # ------------------------------------------------------------------ the manager's part

    def _tell(self, writer: Any, kind: int, data: bytes) -> None:
        span = ffi.new("rp_span *", (ffi.from_buffer(data), len(data)))
        assert lib.rp_ring_write(writer, kind, span, 1) == lib.RP_OK

    def tell_send(self, kind: int, data: bytes) -> None:
        self._tell(self.manager_to_send, kind, data)

    def tell_pull(self, kind: int, data: bytes) -> None:
        self._tell(self.manager_to_pull, kind, data)

    def tell_broker(self, permission: int, max_message_size: int) -> None:
        data = BROKER.write(permission=permission, max_message_size=max_message_size)
        self._tell(self.manager_to_send, lib.RP_MSG_BROKER, data)
        self._tell(self.manager_to_pull, lib.RP_MSG_BROKER, data)

    def add_topic(self, topic: str, queues: int = 4, *, perm: int = 6, flags: int = 0) -> None:
        name = topic.encode()
        for queue_id in range(queues):
            assert lib.rp_control_add(self.block, name, len(name), queue_id) != ffi.NULL
        data = encode_topic(topic, flags=flags, perm=perm, read_queue_nums=queues, write_queue_nums=queues)
        self._tell(self.manager_to_send, lib.RP_MSG_TOPIC, data)
        self._tell(self.manager_to_pull, lib.RP_MSG_TOPIC, data)

    def remove_topic(self, topic: str) -> None:
        data = encode_topic(topic, flags=lib.RP_TABLE_REMOVE)
        self._tell(self.manager_to_send, lib.RP_MSG_TOPIC, data)
        self._tell(self.manager_to_pull, lib.RP_MSG_TOPIC, data)

    def add_group(self, group: str, *, online: bool = True, enabled: bool = True) -> None:
        flags = lib.RP_GROUP_CONSUME_ENABLE * enabled | lib.RP_GROUP_BROADCAST_ENABLE | lib.RP_GROUP_ONLINE * online
        record = encode_group(group, flags=flags, which_broker_when_slow=1)
        self._tell(self.manager_to_pull, lib.RP_MSG_GROUP, record)

    def subscribe(self, group: str, topic: str, tag_hashes: list[int] | None = None, version: int = 1) -> None:
        hashes = tag_hashes or []
        flags = 0 if tag_hashes is not None else lib.RP_SUBSCRIPTION_ALL
        fixed = SUBSCRIPTION.write(version, flags, len(group), len(topic), len(hashes))
        tags = bytes(ffi.buffer(ffi.new("int32_t[]", hashes)))
        self._tell(self.manager_to_pull, lib.RP_MSG_SUBSCRIPTION, fixed + tags + group.encode() + topic.encode())

    def tables_end(self) -> None:
        self.tell_tables_end()
        self.turn()

    def tell_tables_end(self) -> None:
        end = TABLES_END.write(epoch=self.workers["send"].epoch)
        self._tell(self.manager_to_send, lib.RP_MSG_TABLES_END, end)
        self._tell(self.manager_to_pull, lib.RP_MSG_TABLES_END, end)

    def hand_back(self, kind: int, data: bytes, extra_flags: int) -> None:
        """Return a SEND or PULL record that was left to the manager, marked as asked."""
        changed = bytearray(data)
        (SEND_REQUEST if kind == lib.RP_MSG_SEND else PULL_REQUEST).read(changed).flags |= extra_flags
        self._tell(self.manager_to_send if kind == lib.RP_MSG_SEND else self.manager_to_pull, kind, bytes(changed))

    def complete(self, data: bytes) -> None:
        self._tell(self.manager_to_send, lib.RP_MSG_COMPLETED, encode_completed(data, token_of(data)))

    def put(self, record: bytes) -> None:
        """An internal put: a record of `worker_messages.encode_put`."""
        self._tell(self.manager_to_send, lib.RP_MSG_SEND, record)

    def for_manager(self) -> list[tuple[int, bytes]]:
        """(record type, record) of everything that was left to the manager since the last call."""
        return [record for reader in self.left_to_manager for record in drain(reader)]

    # ------------------------------------------------------------------ connections

    def frame(self, command: RemotingCommand, connection: int = 1, *, listener: int = 0, received_ns: int = 0) -> int:
        """One frame of a connection through the codec; returns its status."""
        return self.raw_frame(command.encode()[4:], connection, listener=listener, received_ns=received_ns)

    def raw_frame(self, data: bytes, connection: int = 1, *, listener: int = 0, received_ns: int = 0) -> int:
        origin = ffi.new("rp_origin *", {"connection": connection, "received_ns": received_ns, "listener": listener})
        origin.peer.address[0:4] = [127, 0, 0, 1]
        origin.peer.port, origin.peer.family = 40000, 4
        return int(lib.rp_codec_frame(self.codec, origin, data, len(data)))

    def read_together(self, stream: bytes, connection: int = 1) -> tuple[int, int]:
        """Whole frames of a connection that are passed on together; returns the status and how many were taken."""
        data, cut, at, taken = ffi.from_buffer(stream), [], 0, ffi.new("uint32_t *")
        while at < len(stream):
            cut.append(ffi.new("rp_frame *"))
            assert lib.rp_frame_cut(data + at, len(stream) - at, 1 << 24, cut[-1]) == lib.RP_OK
            at += cut[-1].size
        frames = ffi.new("rp_frame[]", [frame[0] for frame in cut])
        origin = ffi.new("rp_origin *", {"connection": connection})
        return int(lib.rp_codec_frames(self.codec, origin, frames, len(cut), taken)), int(taken[0])

    def closed(self, connection: int) -> None:
        assert lib.rp_codec_closed(self.codec, ffi.new("rp_origin *", {"connection": connection})) == lib.RP_OK

    def turn(self) -> None:
        """Let every stage work through what lies before it."""
        lib.rp_codec_wake(self.codec)
        lib.rp_send_run(self.send, TURN_NS)
        while lib.rp_dispatch_run(self.dispatch, 1 << 30) == lib.RP_OK:
            pass
        lib.rp_pull_run(self.pull, TURN_NS)

    def answers(self) -> list[tuple[int, RemotingCommand]]:
        """(connection, response) of everything that went out since the last call, bodies read from the log."""
        found = []
        for reader in self.replies:
            for kind, data in drain(reader):
                if kind == lib.RP_MSG_REPLY:
                    connection, _flags, frame = ring_messages.reply(data)
                    if frame:
                        found.append((connection, RemotingCommand.decode(frame)))
                else:
                    found.append(self._pull_answer(data))
        return found

    def _pull_answer(self, data: bytes) -> tuple[int, RemotingCommand]:
        connection, slices, head = ring_messages.pull_reply_parts(data)
        return connection, RemotingCommand.decode(head + b"".join(self.log(*one) for one in slices))

    def log(self, offset: int, size: int) -> bytes:
        with open(self.root / "commitlog" / f"{offset // self.file_size * self.file_size:020d}", "rb") as file:
            file.seek(offset % self.file_size)
            return file.read(size)


def drain(reader: Any) -> list[tuple[int, bytes]]:
    records = []
    data, size, kind = ffi.new("const uint8_t **"), ffi.new("uint32_t *"), ffi.new("uint16_t *")
    while lib.rp_ring_read(reader, data, size, kind) == lib.RP_OK:
        records.append((kind[0], bytes(ffi.buffer(data[0], size[0]))))
        lib.rp_ring_release(reader)
    return records
