"""The open half messages of a store at its start: by the progress that the log supports, whatever else is saved."""

from __future__ import annotations

import json
import logging
import types
from pathlib import Path
from typing import Any

import pytest

from rocketpy.broker.files import json_file
from rocketpy.broker.files.log_marks import LogExtent, LogMarks
from rocketpy.broker.transactions.transaction_progress import FILE_NAME, mark_of
from rocketpy.errors import ConfigError, StoreError
from rocketpy.native.core import lib
from rocketpy.processes.boot import half_messages
from rocketpy.processes.boot.half_messages import recovered_half_states
from rocketpy.processes.boot.table_check import check_marked
from rocketpy.reactor.worker_messages import encode_put
from rocketpy.remoting.fast_path import MessageToPut
from rocketpy.remoting.json_writer import pretty_pieces
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store
from tests.support.fast_path import FastPath
from tests.support.store_writer import small_config

HALF, OPS = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with four half messages, of which those at 0 and 1 have ended."""
    config: Any = small_config(tmp_path, message_index_enable=False)
    close_store(open_store(config), clean=False)
    rig = FastPath(
        tmp_path,
        file_size=config.mapped_file_size_commit_log,
        cq_file_size=config.mapped_file_size_consume_queue,
    )
    for topic in (HALF, OPS):
        rig.add_topic(topic, 1)
    rig.tables_end()
    for topic, body in ((HALF, b"a"), (HALF, b"b"), (OPS, b"0"), (OPS, b"1"), (HALF, b"c"), (HALF, b"d")):
        rig.put(encode_put(MessageToPut(topic, 0, body, b""), 7, 0))
        lib.rp_send_run(rig.send, 0)
    rig.turn()
    rig.close()
    return tmp_path


def opened(root: Path) -> OpenedStore:
    config: Any = small_config(root, message_index_enable=False)
    return open_store(config)


def save(root: Path, *marks: tuple[int, int, int]) -> Path:
    path = root / "config" / FILE_NAME
    content = LogMarks([mark_of(*mark) for mark in marks]).to_save(1 << 60)
    json_file.save(path, ["".join(pretty_pieces(content)).encode()])
    return path


def open_ones(root: Path) -> tuple[int, list[int]]:
    """The base, and the offsets that are open."""
    store = opened(root)
    try:
        states = recovered_half_states(store)
        return states.base, [offset for offset in range(4) if states.is_open(offset)]
    finally:
        close_store(store, clean=False)


def test_without_progress_all_op_messages_are_read(root: Path) -> None:
    assert open_ones(root) == (0, [2, 3])


def test_the_newest_mark_is_where_the_window_begins(root: Path) -> None:
    save(root, (1, 0, 100), (2, 1, 300))
    assert open_ones(root) == (2, [2, 3])


def test_a_store_without_messages_has_no_open_transactions(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, half_messages.logger.name)
    assert open_ones(tmp_path)[0] == 0
    assert "transactions" not in caplog.text


def test_offsets_of_the_group_alone_end_nothing(root: Path) -> None:
    """They may be ahead of the log: of a slave that copied them, or from before a power failure."""
    (root / "config").mkdir()
    text = json.dumps({"offsetTable": {f"{HALF}@CID_RMQ_SYS_TRANS": {"0": 4}}})
    (root / "config" / "consumerOffset.json").write_text(text)
    assert open_ones(root) == (0, [2, 3])


def test_a_mark_behind_the_log_ends_nothing(root: Path) -> None:
    path = save(root, (2, 1, 300), (4, 3, 1 << 40))
    check_marked(path, LogExtent(1 << 39))
    assert open_ones(root) == (2, [2, 3])


def test_a_table_without_a_position_ends_nothing(root: Path) -> None:
    """It was not held to the log.
    Fault: A transaction progress without a position was trusted."""
    save(root, (4, 3, -1))
    assert open_ones(root) == (0, [2, 3])


def test_a_damaged_file_stops_the_start(root: Path) -> None:
    save(root, (2, 1, 300)).write_text("damage")
    with pytest.raises(ConfigError, match="damaged"):
        open_ones(root)


def test_progress_that_cannot_be_read_stops_the_start(root: Path) -> None:
    (root / "config" / FILE_NAME).mkdir(parents=True)
    with pytest.raises(StoreError, match=f"cannot read .*{FILE_NAME}"):
        open_ones(root)


def test_open_transactions_are_told(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, half_messages.logger.name)
    open_ones(root)
    assert [line for line in caplog.messages if "transactions" in line] == [
        f"found 2 open transactions from offset 0 of {HALF} on; 2 op messages read, 0 copies of other half messages"
    ]


def found_by_core(monkeypatch: pytest.MonkeyPatch, status: int, **numbers: int) -> None:
    """Let the compiled core report this, whatever is in the store."""

    def recover(*arguments: Any) -> int:
        for name, number in numbers.items():
            setattr(arguments[-1], name, number)
        return status

    core = types.SimpleNamespace(rp_half_recover=recover, RP_OK=lib.RP_OK)
    monkeypatch.setattr(half_messages, "lib", core)


def test_op_messages_that_were_lost_with_the_power_are_told(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, half_messages.logger.name)
    found_by_core(monkeypatch, lib.RP_OK, ops_missing=2)
    open_ones(root)
    assert "the log was cut after the committed messages of 2 transactions" in caplog.text
    assert "open transactions" not in caplog.text


def test_a_store_whose_half_messages_cannot_be_read_is_not_opened(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found_by_core(monkeypatch, lib.RP_IO_ERROR)
    with pytest.raises(StoreError, match="cannot read the half messages of"):
        open_ones(root)
