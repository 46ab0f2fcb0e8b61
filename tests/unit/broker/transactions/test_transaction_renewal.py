"""Which open half messages are stored again, and what stays known of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from rocketpy.broker.files import json_file
from rocketpy.broker.transactions import transaction_renewal
from rocketpy.broker.transactions.transactions import Decision, decide
from rocketpy.message.record import decode_record
from rocketpy.remoting.fast_path import EndTransaction, PutResult, TransactionEnd
from tests.support.slow_path import NOW_MS, SlowPathRig
from tests.unit.broker.transactions.test_transactions import check, fill, half

COUNT = 40


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlowPathRig:
    """40 half messages, of which 3 and 30 are open; more than 20 after an open one are too many."""
    monkeypatch.setattr(transaction_renewal, "BEHIND_MAX", 20)
    rig = SlowPathRig(tmp_path)
    fill(rig, *({} for _ in range(COUNT)))
    rig.fast_path.half_states.ended = set(range(COUNT)) - {3, 30}
    rig.services.transactions.keep_progress()
    store_again(rig)
    return rig


def store_again(rig: SlowPathRig) -> None:
    """Answer renewals with the offset after all others."""
    end_of = rig.fast_path.end_transaction

    async def end(request: EndTransaction) -> PutResult:
        result = await end_of(request)
        return PutResult(result.code, queue_offset=COUNT if request.action is TransactionEnd.RENEW else -1)

    rig.fast_path.end_transaction = end  # type: ignore[method-assign]


def renew(rig: SlowPathRig) -> list[tuple[TransactionEnd, int]]:
    trio.run(rig.services.transactions.renew)
    return [(end.action, end.queue_offset) for end in rig.fast_path.ends]


def test_one_that_is_far_behind_is_stored_again(rig: SlowPathRig) -> None:
    """Fault: One long-open half message held the window of states until no transaction was taken."""
    assert renew(rig) == [(TransactionEnd.RENEW, 3)]
    rig.services.transactions.keep_progress()
    assert rig.fast_path.half_states.base == 30
    assert renew(rig) == [(TransactionEnd.RENEW, 3)]


def test_nothing_is_stored_again_while_there_is_room(rig: SlowPathRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_renewal, "BEHIND_MAX", COUNT)
    assert renew(rig) == []


def test_it_is_tried_again(rig: SlowPathRig) -> None:
    rig.fast_path.end_code = 14
    assert renew(rig) == [(TransactionEnd.RENEW, 3)]
    assert rig.fast_path.half_states.is_open(3)
    assert renew(rig) == [(TransactionEnd.RENEW, 3)] * 2


def test_many_open_ones_are_named_instead(rig: SlowPathRig, caplog: pytest.LogCaptureFixture) -> None:
    rig.fast_path.half_states.ended -= {4, 5}
    assert renew(rig) == []
    assert "transactions stay open: 3 among the oldest of 37 half messages" in caplog.text


def test_one_that_cannot_be_read_is_left_to_the_check(rig: SlowPathRig) -> None:
    del rig.store.records[4000]
    assert renew(rig) == []


def test_its_questions_count_on(rig: SlowPathRig) -> None:
    check(rig, 2)
    trio.run(rig.services.transactions.questions.file.save)
    renew(rig)
    trio.run(rig.services.transactions.questions.file.save)
    assert json_file.load(rig.services.transactions.questions.file.path) == {"checks": {"30": 2, "40": 2}}


@pytest.mark.parametrize(
    ("first_ms", "decision"),
    [
        (NOW_MS - 60_000, Decision.ASK),
        (NOW_MS - 59_999, Decision.SKIP),
        (NOW_MS - 73 * 3_600_000, Decision.DISCARD),
        (NOW_MS + 5_000, Decision.SKIP),
        ("soon", Decision.SKIP),
    ],
)
def test_its_age_counts_from_its_first_storage(first_ms: int | str, decision: Decision) -> None:
    properties = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "60", "TRAN_FIRST_STORED_MS": str(first_ms)}
    record = decode_record(half(0, 1000, age_ms=10, **properties))
    assert record is not None
    assert decide(record, NOW_MS, 0, time_out_ms=6_000, check_max=15, hours_max=72) is decision
