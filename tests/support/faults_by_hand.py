"""Faults for `python -m tests.support.faults`: each replaces a text that a source has just once, and names its tests.

`FAULTS` has one fault in each package that guards data, and one in C. `CORE_FAULTS` has those of the compiled core, in
recovery, in the control block, in transactions and in replication: no tool makes mutants of C here.
"""

from __future__ import annotations

import attrs


@attrs.frozen
class Fault:
    """A plausible slip. `old` occurs once in the file at `path`; one of `tests` fails with `new` in its place."""

    name: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]


FAULTS = (
    Fault(
        "store: old bytes stay after the end of a cut log",
        "rocketpy/store/recovery/log_files.py",
        "                self._files.wipe(path, end - self._starts[-1])\n",
        "                pass\n",
        ("tests/unit/store/test_cut.py",),
    ),
    Fault(
        "message: the CRC of a body keeps its highest bit",
        "rocketpy/message/record.py",
        "    return zlib.crc32(body) & CRC_MASK\n",
        "    return zlib.crc32(body)\n",
        ("tests/unit/message/test_record.py",),
    ),
    Fault(
        "remoting: a frame has no upper bound",
        "rocketpy/remoting/frame.py",
        "    if length < 0 or LENGTH_SIZE + length > frame_size_max:\n",
        "    if length < 0:\n",
        ("tests/unit/remoting/test_frame.py", "tests/unit/remoting/test_connection.py"),
    ),
    Fault(
        "broker: a delayed message that the disk refused counts as delivered",
        "rocketpy/broker/schedule.py",
        "        return result.is_stored\n\n    def _look_up(",
        "        return True\n\n    def _look_up(",
        ("tests/unit/broker/test_schedule.py",),
    ),
    Fault(
        "failover: one member that has a message is enough",
        "rocketpy/failover/in_sync.py",
        "    return min(ends)\n",
        "    return max(ends)\n",
        ("tests/unit/failover/test_in_sync.py",),
    ),
    Fault(
        "coordinator: a transaction that may have been applied is sent again",
        "rocketpy/coordinator/gateway.py",
        "                if not exc.unsent:\n                    raise\n",
        "                pass\n",
        ("tests/unit/coordinator/test_gateway.py",),
    ),
    Fault(
        "replication: a slave with another history is served",
        "rocketpy/replication/handshake.py",
        "    if crc != tail.crc:\n",
        "    if False:\n",
        ("tests/unit/replication/test_own_slaves.py",),
    ),
    Fault(
        "reactor: requests of a connection change their order",
        "rocketpy/reactor/pool_queue.py",
        "        request = turn.requests.popleft()\n",
        "        request = turn.requests.pop()\n",
        ("tests/unit/reactor/test_pool_queue.py",),
    ),
    Fault(
        "startup: a master with a shorter log than its slave starts in silence",
        "rocketpy/startup/boot/lost_end.py",
        "    if replicated > end:\n",
        "    if False:\n",
        ("tests/unit/startup/test_lost_end.py",),
    ),
    Fault(
        "client: the offset of a queue passes a message in consumption",
        "rocketpy/client/consuming/process_queue.py",
        "        return self.queue_offset_max + 1 if first is None else first\n",
        "        return self.queue_offset_max + 1\n",
        ("tests/unit/client/test_process_queue.py",),
    ),
    Fault(
        "csrc: the slowest member of the in-sync set does not count",
        "csrc/replication/confirm.c",
        "        if (position < end) end = position;\n",
        "",
        ("tests/unit/replication/test_confirm.py",),
    ),
)

TORN = ("tests/unit/store/recovery/test_power_failures.py", "tests/unit/store/recovery/test_positions.py")
QUEUES = (
    "tests/unit/store/test_queue_loading.py",
    "tests/unit/store/recovery/test_queue_ends.py",
    "tests/unit/store/recovery/test_lost_files.py",
    "tests/unit/store/recovery/test_positions.py",
)
CORE_RECOVERY = ("tests/unit/store/recovery/test_core_recovery.py",)
RECOVERY_C = "csrc/store/recovery.c"
BLOCK = ("tests/unit/store/test_control_block.py", "tests/unit/store/test_control_damage.py")
BLOCK_C, TABLES_C = "csrc/store/control_block.c", "csrc/store/control_tables.c"
HALVES = (
    "tests/unit/native/test_missing_ops.py",
    "tests/unit/native/test_half_recovery.py",
    "tests/unit/native/test_half_messages.py",
    "tests/unit/native/test_half_renewal.py",
)
CONFIRM = ("tests/unit/replication/test_confirm.py",)
CONFIRM_C = "csrc/replication/confirm.c"
STREAM = ("tests/unit/replication/test_own_stream.py", "tests/unit/replication/test_member_frames.py")
STREAM_C = "csrc/replication/slave_stream.c"
RECEIVED = ("tests/unit/native/test_slave_log.py",)
RECEIVED_C = "csrc/store/received_log.c"


def _at(path: str, tests: tuple[str, ...], *faults: tuple[str, str, str]) -> tuple[Fault, ...]:
    name = path.rsplit("/", 1)[-1]
    return tuple(Fault(f"{name}: {what}", path, old, new, tests) for what, old, new in faults)


CORE_FAULTS = (
    *_at(
        RECOVERY_C,
        TORN,
        ("prepared messages get units", "return rp_has_unit(record->sys_flag) && record->", "return record->"),
        ("a record of another place", "    if (record->phy_offset != phy_offset) return 1;\n", ""),
        ("a durable record may be torn", "    if (phy_offset + record->size <= durable->phy_offset) return 0;\n", ""),
        (
            "a record of the checkpoint's millisecond",
            "timestamp_ms < durable->before_ms",
            "timestamp_ms <= durable->before_ms",
        ),
        ("a torn topic", "    if (memchr(record->topic, 0, record->topic_size)) return 1;\n", ""),
        ("a sector inside the properties", "at < end; at += SECTOR", "0; at += SECTOR"),
        ("a torn end of the properties", "return record->properties[record->properties_size - 1] == 0;", "return 0;"),
        ("a scan without CRC", "file_size - at, flags & RP_SCAN_CRC, &record", "file_size - at, 0, &record"),
        ("a scan takes torn records", "durable && is_torn(&record, scan->end, durable)", "0"),
    ),
    *_at(
        RECOVERY_C,
        QUEUES,
        (
            "a next offset stays on the last record",
            "if (*at <= record->queue_offset) rp",
            "if (*at < record->queue_offset) rp",
        ),
        ("units of lost records", "unit.phy_offset >= phy_limit || ", ""),
        ("pre-blank units end a queue", "if (unit.size == INT32_MAX) continue;", "if (unit.size == INT32_MAX) break;"),
        ("a last unit of another record", "return unit.phy_offset + unit.size == queue->max_phy_offset;", "return 1;"),
        ("a lost queue file is not missed", "errno == ENOMEM ? -1 : 0;", "errno == ENOMEM ? -1 : 1;"),
        ("a rebuild is not announced", "        rp_store_release(&control->rebuilding, 1);\n", ""),
    ),
    *_at(
        RECOVERY_C,
        CORE_RECOVERY,
        ("a queue without its last unit", "(!queue || queue->max_phy_offset < scan->end + record->size)", "!queue"),
        ("a queue that lacks a unit", "record->queue_offset > (queue ?", "record->queue_offset > 1 + (queue ?"),
        (
            "bytes in a body are taken for a record",
            " ||\n            rp_load64(image + at + OWN_OFFSET_AT) != phy_offset + at)",
            ")",
        ),
        ("a deleted file is followed", "from = dispatched > min ? dispatched : min;", "from = dispatched;"),
        (
            "a unit whose record goes on after the end",
            "        if (unit.size > phy_limit - unit.phy_offset) break;\n",
            "",
        ),
        ("a queue after the end of the log", "    if (queue->max_phy_offset > log_end) return 0;\n", ""),
        ("lost units stay promised", "        rp_store_release(&control->units_durable_phy_offset, 0);\n", ""),
        ("files of a lost queue stay", "return rp_cq_remove(writer, queue) == RP_OK ? 0 : -1;", "return 0;"),
        ("waiting pulls of a dead worker stay", "queue(block, i)->watched, 0);", "queue(block, i)->watched, 1);"),
    ),
    *_at(
        RECOVERY_C,
        ("tests/unit/store/recovery/test_stops.py",),
        (
            "next offsets end at damage",
            "            position += rp_recovery_resync(image + (position - start), stop - position, position);\n"
            "            continue;\n",
            "            return RP_OK;\n",
        ),
    ),
    *_at(
        BLOCK_C,
        BLOCK,
        ("another file size", " && control->commitlog_file_size == commitlog_file_size &&", " &&"),
        ("too many queues", "           control->queue_count <= RP_CONTROL_QUEUES_MAX && ", "           "),
        ("a slot that names no entry", "            if (values[i] > entries) return 0;\n", ""),
        ("a table without a free slot", "    return taken <= entries;\n", "    return 1;\n"),
        ("a queue without a topic", "queue->topic >= control->topic_count || queue->queue_id", "queue->queue_id"),
        (
            "an unknown state",
            "!= RP_QUEUE_LIVE && queue->state != RP_QUEUE_DELETED) return 0;",
            "!= RP_QUEUE_LIVE && 0) return 0;",
        ),
        (
            "a queue that is not found by its name",
            "queue_at(block, i)->queue_id) != i + 1) return 0;",
            "queue_at(block, i)->queue_id) == UINT32_MAX) return 0;",
        ),
        (
            "a block of another boot is thrown away",
            "if (control->clean || rp_control_is_same_boot(block)) return 0;",
            "return 0;",
        ),
        ("a damaged block of this boot is kept", "if (control->clean || rp_control_is_same_boot(block)) return 0;", ""),
    ),
    *_at(
        TABLES_C,
        BLOCK,
        ("a topic leaves the directory", "memchr(name, '/', size) || ", ""),
        ("the parent directory is a topic", " || (size == 2 && name[1] == '.')", ""),
        ("a deleted queue comes back as deleted", "        rp_store_release32(&queue->state, RP_QUEUE_LIVE);\n", ""),
        ("queues of one topic are one", "if (queue->queue_id == queue_id && name_is", "if (name_is"),
    ),
    *_at(
        TABLES_C,
        ("tests/unit/store/test_control_damage.py",),
        (
            "an addition of a dead process stays hidden",
            "        rp_control_show_newest(block);\n    } else",
            "    } else",
        ),
    ),
    *_at(
        "csrc/store/half_committed.c",
        HALVES,
        ("a message of another topic", " || memcmp(topic, message->topic, topic_size) != 0))", "))"),
        ("a message of another key", "    if (key_size && memcmp(key, half_key, key_size) != 0) return 0;\n", ""),
        (
            "a message of another time",
            "return half->born_timestamp_ms == message->born_timestamp_ms && half",
            "return half",
        ),
        (
            "a message of another body",
            "(!half->body_size || memcmp(half->body, message->body, half->body_size) == 0)",
            "1",
        ),
        ("a half message of another topic", "    if (!is_half(half)) return 0;\n", ""),
    ),
    *_at(
        "csrc/store/half_states.c",
        HALVES,
        ("an end that was not stored", "if (states->end && states->end <= published_phy_offset)", "if (states->end)"),
        ("an end that was stored is lost", "if (states->end && states->end <= published_phy_offset)", "if (0)"),
        ("what is before the window is open", "    if (offset < base) return RP_HALF_ENDED;\n", ""),
        ("an op message is stored twice", "states->ops_missing_count = count - 1;", "(void)0;"),
        ("the base moves back", "    if (base > states->base) rp", "    rp"),
    ),
    *_at(
        "csrc/store/half_recovery.c",
        HALVES,
        (
            "op messages below the base are lost",
            "return put_key(&recovery->below, &offset, sizeof offset, 1);",
            "return RP_OK;",
        ),
        (
            "op messages that are not dispatched",
            "if (is_topic(&record, RP_OP_TOPIC)) status = take_op(recovery, &record);",
            "",
        ),
        (
            "a committed message that is not dispatched",
            "if (rp_half_has_op(&record)) take_committed(recovery, at);",
            "",
        ),
        ("a committed message at the end", "    look_at_last_record(recovery);\n", ""),
        (
            "damage ends the tail",
            "                at += rp_recovery_resync(image + (at - start), start + size - at, at);\n",
            "                break;\n",
        ),
        (
            "the unit names another place",
            "(!place_of(recovery, halves, offset, &place) || place != half_at)",
            "!place_of(recovery, halves, offset, &place)",
        ),
        (
            "a copy stays open",
            "if (ends_as_copy(recovery, offset, record) || rp_half_states_of",
            "if (rp_half_states_of",
        ),
        ("a copy is found by its key only", "    if (is_same(recovery, *original, copy)) return 1;\n", ""),
        (
            "a renewed half message keeps its new place for itself",
            "    if (rp_half_is_renewed(record)) remember_renewals(recovery, record);\n",
            "",
        ),
        (
            "the op queue is read from a wrong place",
            "            low = middle + 1;\n",
            "            low = middle + 2;\n",
        ),
    ),
    *_at(
        CONFIRM_C,
        CONFIRM,
        ("an acknowledgement of another epoch", "row->epoch != confirm->orders.epoch || ", ""),
        (
            "an acknowledgement of another store",
            "strncmp(a->incarnation, b->incarnation, sizeof a->incarnation) == 0",
            "1",
        ),
        ("a row that is free", "row->state == RP_SLAVE_FREE || ", ""),
        ("what is not on the disk", "return durable < end ? durable : end;", "return end;"),
        (
            "a master that is alone does not say so",
            "    if (!others) rp_store_release(&member->alone_phy_offset, end);",
            "    ",
        ),
        ("nobody has to acknowledge", " || !confirm->orders.counting_count", ""),
        ("the lowest row counts", "if (row->acked_phy_offset > best) best", "if (!best) best"),
    ),
    *_at(
        CONFIRM_C,
        ("tests/fault/test_confirm_race.py",),
        ("orders that hold no more", "    if (!rp_member_holds(member, confirm->version_plus_1 - 1)) return 0;\n", ""),
    ),
    *_at(
        STREAM_C,
        STREAM,
        (
            "damaged bytes are passed on",
            "if (rp_crc32(0, log, stream->data_size) != stream->data_crc) return",
            "if (0) return",
        ),
        (
            "a gap in the log",
            "    if (position != stream->phy_offset || size <= 1 + RP_HA_SIZE_DATA_HEADER)",
            "    if (size <= 1 + RP_HA_SIZE_DATA_HEADER)",
        ),
        ("a frame over two files", " || size > file_size - position % file_size)", ")"),
        ("bytes of another epoch", " || (epoch >= 0 && epoch != (int32_t)rp_load32(stream->header + 21))", ""),
        ("a frame over two epochs", "if (size > end - position || (epoch", "if ((epoch"),
        ("an epoch that is not on the disk", "stream->needs_epochs_to = position + size;", "(void)0;"),
        ("an acknowledgement before the sync", "        if (durable < position) position = durable;\n", ""),
        (
            "an acknowledgement of another epoch is sent",
            "(uint32_t)stream->config.epoch);\n    } else",
            "0);\n    } else",
        ),
        ("consumers see what is not here", "    if (confirmed > published) confirmed = published;\n", ""),
        ("the confirmed position moves back", " || confirmed <= control->confirmed_phy_offset) return;", ") return;"),
        (
            "a heartbeat of another epoch",
            "    if ((int32_t)rp_load32(header + 21) != stream->config.epoch)",
            "    if (0)",
        ),
        (
            "a newer epoch is not remembered",
            "    if (epoch > stream->config.epoch) rp_member_see_epoch(stream->config.member, epoch);\n",
            "",
        ),
    ),
    *_at(
        STREAM_C,
        ("tests/unit/replication/test_stream.py",),
        ("a refused stream goes on", "    if (is_refused(stream)) end_stream(stream, RP_STREAM_END_REFUSED);\n", ""),
    ),
    *_at(
        RECEIVED_C,
        RECEIVED,
        ("a part of the last stream stays", "        memset(at, 0, received->received - end);\n", ""),
        ("a record of another place is published", " || record.phy_offset != phy_offset)) return", ")) return"),
        ("a hole is received", "    if (phy_offset > received->received) return RP_INVALID;\n", ""),
        (
            "a record of any size is awaited",
            "record.size > room || record.size > received->record_max",
            "record.size > room",
        ),
        (
            "a record over the end of a file is awaited",
            "record.size > room || record.size > received->record_max",
            "record.size > received->record_max",
        ),
        ("a blank is counted as a record", "received->records += !is_blank;", "received->records++;"),
        ("a blank of another size", " && record.size == room;", ";"),
        ("bytes that are known are written again", "left = size > known ? size - known : 0;", "left = size;"),
    ),
)
