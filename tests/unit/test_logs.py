"""A line is one event with its fields; repeated ones are one line in an interval, and none is lost from the numbers."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rocketpy.logs import (
    JournalLines,
    JsonLines,
    LogLimit,
    TextLines,
    and_more,
    event_of,
    is_journal,
    serving,
    set_up_logging_of_command,
)

NOW_S = [100.0]


def limit() -> LogLimit:
    NOW_S[0] = 100.0
    return LogLimit(10.0, lambda: NOW_S[0])


def test_the_first_event_is_told_and_the_next_are_counted() -> None:
    one = limit()
    assert [one.take() for _ in range(4)] == [1, 0, 0, 0]
    NOW_S[0] = 109.9
    assert one.take() == 0
    NOW_S[0] = 110.0
    assert one.take() == 5


def test_kinds_do_not_hold_one_another_back() -> None:
    one = limit()
    assert [one.take("a"), one.take("b"), one.take("a"), one.take("b", 7)] == [1, 1, 0, 0]
    NOW_S[0] = 110.0
    assert [one.take("a"), one.take("b")] == [2, 8]


def test_several_lines_in_an_interval() -> None:
    NOW_S[0] = 100.0
    one = LogLimit(10.0, lambda: NOW_S[0], lines=2)
    assert [one.take() for _ in range(4)] == [1, 1, 0, 0]
    NOW_S[0] = 105.0
    assert one.take() == 0
    NOW_S[0] = 110.0
    assert [one.take() for _ in range(3)] == [4, 1, 0]


def test_a_look_without_new_events_tells_those_held_back_once() -> None:
    one = limit()
    assert one.take(count=0) == 0  # nothing has happened yet, and the interval has not begun
    assert one.take(count=3) == 3
    assert one.take(count=4) == 0
    NOW_S[0] = 110.0
    assert [one.take(count=0), one.take(count=0)] == [4, 0]


def test_threads_tell_each_event_once() -> None:
    one = limit()
    with ThreadPoolExecutor(8) as pool:
        told = sum(pool.map(lambda _: one.take("x"), range(4000)))
    NOW_S[0] = 110.0
    assert told == 1 and one.take("x", 0) == 3999


def test_the_words_of_a_line() -> None:
    assert and_more(1) == ""
    assert and_more(3) == " (and 2 more since the last line about it)"


# --- lines ---


@pytest.fixture
def request_5() -> Iterator[None]:
    token = serving.set((0xC5, 5))
    yield
    serving.reset(token)


def record(text: str, *values: object, level: int = logging.WARNING, fault: bool = False) -> logging.LogRecord:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        exc_info = sys.exc_info() if fault else None
    return logging.LogRecord("rocketpy.x", level, __file__, 1, text, values, exc_info)


def fields(text: str, *values: object, fault: bool = False) -> dict[str, Any]:
    line = JsonLines().format(record(text, *values, fault=fault))
    assert "\n" not in line
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def test_an_object_has_the_constant_text_and_the_values_that_it_names() -> None:
    found = fields("group %s: dropped the offset %d of topic %s, queue %d, 100%% of %s%s", "G", 7, "T", 2, "it", "")
    assert found["event"] == "group ...: dropped the offset ... of topic ..., queue ..., 100% of ......"
    assert found["message"] == "group G: dropped the offset 7 of topic T, queue 2, 100% of it"
    assert [found[name] for name in ("group", "offset", "topic", "queue")] == ["G", 7, "T", 2]
    assert (found["level"], found["logger"], found["pid"]) == ("WARNING", "rocketpy.x", os.getpid())
    assert found["time"].endswith("Z") and len(found["time"]) == 24


def test_log_offsets_and_connections_have_fields_of_their_own() -> None:
    found = fields("cannot read log offset %d for connection %x", 9, 0xC5)
    assert (found["logOffset"], found["connection"]) == (9, "c5") and "offset" not in found


def test_numbers_are_numbers_as_the_text_rounds_them() -> None:
    found = fields("served request %s, answered %s, duration %.1f ms", "PULL_MESSAGE", 19, 1.26)
    assert (found["request"], found["code"], found["durationMs"]) == ("PULL_MESSAGE", 19, 1.3)


def test_a_text_that_is_no_constant_takes_no_time() -> None:
    """A library may log what a client sent as its text."""
    text = "%" + "0" * 20_000
    began_s = time.process_time()
    assert event_of(text) == text
    assert time.process_time() - began_s < 0.5


def test_values_that_are_no_text_and_texts_without_values() -> None:
    assert fields("group %s is gone", ValueError("G"))["group"] == "G"
    assert fields("100% gone")["event"] == "100% gone", "without values nothing is formatted"


def test_a_traceback_is_in_the_line_of_its_event() -> None:
    assert "two\nlines" in fields("failed", fault=True)["traceback"]
    line = TextLines().format(record("failed", fault=True))
    assert "\n" not in line and "failed | Traceback (most recent call last): | File " in line


def test_control_characters_of_a_peer_do_not_reach_the_terminal() -> None:
    """Fault: Terminal escapes in the remark of a name server stood in the broker's log as they came."""
    remark = "a\x1b[2J\tb\x7f\x9b31mé\r\nc"
    line = TextLines().format(record("refused: %s", remark))
    assert line.endswith(r"refused: a\u001b[2J\u0009b\u007f\u009b31mé | c")
    written = JsonLines().format(record("refused: %s", remark))
    assert written.isprintable() and json.loads(written)["message"] == f"refused: {remark}"


@pytest.mark.usefixtures("request_5")
def test_a_line_about_a_request_names_it() -> None:
    assert TextLines().format(record("cannot answer")).endswith("cannot answer [connection c5, opaque 5]")
    found = fields("cannot answer")
    assert (found["connection"], found["opaque"]) == ("c5", 5)
    assert fields("closed connection %x", 0xD6)["connection"] == "d6", "the text says which one it means"


def test_the_journal_gets_priorities() -> None:
    lines = JournalLines(TextLines())
    assert [lines.format(record("x", level=level))[:3] for level in (10, 20, 30, 40)] == ["<7>", "<6>", "<4>", "<3>"]
    reader, writer = os.pipe()
    status = os.fstat(writer)
    assert is_journal(writer, {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"})
    assert not is_journal(writer, {"JOURNAL_STREAM": "1:1"}) and not is_journal(writer, {})
    os.close(reader)
    os.close(writer)


def test_the_environment_of_a_command() -> None:
    set_up_logging_of_command({})
    with pytest.raises(SystemExit, match="ROCKETPY_LOG_FORMAT=xml is none of text, json"):
        set_up_logging_of_command({"ROCKETPY_LOG_FORMAT": "xml"})
