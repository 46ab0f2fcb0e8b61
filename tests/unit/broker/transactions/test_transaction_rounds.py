"""Saved counts, log lines and the topic on the disk after a round of checks; other tasks run meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from rocketpy.broker.files import json_file
from rocketpy.broker.transactions import transaction_questions, transactions
from rocketpy.message import names
from rocketpy.message.numbers import LONG_MAX
from rocketpy.transport.steps import UNITS_PER_STEP
from tests.support.slow_path import SlowPathRig
from tests.unit.broker.transactions.test_transactions import check, fill, progress


def load_counts(rig: SlowPathRig, counts: object) -> dict[str, int]:
    """Load a file with these counts. Returns the loaded ones."""
    file = rig.services.transactions.questions.file
    file.path.parent.mkdir(parents=True, exist_ok=True)
    file.path.write_text(json.dumps({"checks": counts}))
    with pytest.MonkeyPatch.context() as patch:  # counts beyond the end of the queue are not loaded
        patch.setattr(rig.store, "max_offset", lambda topic, queue_id: LONG_MAX)
        rig.services.transactions.load()
    file.changed()
    trio.run(file.save)
    saved = json_file.load(file.path)
    assert saved is not None
    return {str(offset): asked for offset, asked in saved["checks"].items()}


def test_saved_counts_that_are_none_are_left_out(tmp_path: Path) -> None:
    assert load_counts(SlowPathRig(tmp_path), {"1": "x", "2": None, "3": 4}) == {"3": 4}
    assert load_counts(SlowPathRig(tmp_path), [1, 2]) == {}


def test_no_more_counts_are_loaded_than_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_questions, "CHECKED_MAX", 2)
    assert load_counts(SlowPathRig(tmp_path), {"1": 1, "2": 2, "3": 3}) == {"1": 1, "2": 2}


def test_a_count_that_goes_is_saved_as_well(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    file = rig.services.transactions.questions.file
    fill(rig, {}, {})
    check(rig)
    trio.run(file.save)
    rig.fast_path.half_states.ended = {0, 1}
    check(rig)
    assert file.is_dirty, "ended transactions have no counts"
    trio.run(file.save)
    rig.services.transactions.questions.begin_again(1)
    assert file.is_dirty, "a resumed transaction begins anew"


def test_the_topic_of_discarded_messages_is_on_the_disk_first(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path, transaction_check_max=0)
    fill(rig, {})
    check(rig)
    assert rig.fast_path.ends and not rig.services.topics.file.is_dirty
    assert names.TRANS_CHECK_MAX_TIME_TOPIC in rig.services.topics.file.path.read_text()


def test_many_discarded_transactions_are_one_log_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rig = SlowPathRig(tmp_path, transaction_check_max=0)
    fill(rig, {}, {}, {})
    check(rig)
    assert len(rig.fast_path.ends) == 3 and caplog.text.count("discarded the transaction") == 1


@pytest.mark.parametrize(("code", "lines"), [(0, 1), (14, 0)])
@pytest.mark.parametrize("is_readable", [True, False])
def test_only_what_the_store_has_taken_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, code: int, lines: int, is_readable: bool
) -> None:
    rig = SlowPathRig(tmp_path, transaction_check_max=0)
    fill(rig, {})
    if not is_readable:
        rig.store.records.clear()
    rig.fast_path.end_code = code
    check(rig)
    assert caplog.text.count("discarded the transaction") == lines
    assert "lost" not in caplog.text


def test_a_store_without_transactions_has_no_progress(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    rig.services.transactions.keep_progress()
    rig.services.transactions.keep_progress()
    assert progress(rig) == (-1, -1)


def turns_of_others(rig: SlowPathRig) -> int:
    """Count the turns of another task while the half messages are checked."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            await trio.lowlevel.checkpoint()
            await rig.services.transactions.check()
            nursery.cancel_scope.cancel()

    trio.run(main)
    return turns


def test_other_tasks_run_while_many_half_messages_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "UNITS_PER_STEP", 10)
    rig = SlowPathRig(tmp_path)
    fill(rig, *({"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"} for _ in range(200)))
    assert turns_of_others(rig) >= 20


def test_other_tasks_run_while_many_counts_are_forgotten(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    load_counts(rig, {str(offset): 1 for offset in range(5 * UNITS_PER_STEP)})
    assert turns_of_others(rig) >= 5
