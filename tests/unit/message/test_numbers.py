"""Numbers in foreign text: Java's rules, one error, and no text that costs more than its length."""

import ast
from pathlib import Path

import pytest

from rocketpy.errors import NumberInvalid
from rocketpy.message.numbers import int_or, long_or, parse_int, parse_integer, parse_long
from tests.support.cases import cases
from tests.support.rules import nodes_of, text_of

PACKAGE = Path(__file__).parents[3] / "rocketpy"
NO_INTEGERS = (
    "",
    "+",
    "-",
    "1.0",
    " 1",
    "1 ",
    "0x10",
    "1_0",
    "--1",
    "\u0661",
    "\u00b2",
    "1\u00b2",
    "\u2460",
    "nan",
    "1e3",
)


def test_ranges() -> None:
    assert parse_int("-2147483648") == -(1 << 31) and parse_long("9223372036854775807") == (1 << 63) - 1
    for parse, text in ((parse_int, "2147483648"), (parse_long, "-9223372036854775809"), (parse_int, "-" + "9" * 5000)):
        with pytest.raises(NumberInvalid, match="within"):
            parse(text)
    with pytest.raises(NumberInvalid, match="within 0 and 65535"):
        parse_integer("-" + "9" * 30, 0, 65_535)


@cases("text", NO_INTEGERS)
def test_no_integers(text: str) -> None:
    with pytest.raises(NumberInvalid):
        parse_long(text)
    assert int_or(text, -7) == long_or(text, 8) - 15 == -7


def test_leading_zeros_count_for_nothing_however_many() -> None:
    assert parse_int("0" * 5000 + "12") == 12 and parse_int("-" + "0" * 5000) == 0 and parse_int("+007") == 7


def test_a_long_text_is_shown_by_its_beginning() -> None:
    for text in ("9" * 5000, "x" * 5000):
        with pytest.raises(NumberInvalid) as caught:
            parse_long(text)
        assert len(str(caught.value)) < 120


def test_a_default_stands_for_none_and_for_what_does_not_fit() -> None:
    assert int_or(None, 3) == int_or("2147483648", 3) == 3 and long_or("2147483648", 3) == 1 << 31


QUESTIONS = ("isdigit", "isdecimal", "isnumeric")
# `int(text)`, `isdigit` and `isdecimal` on texts that do not come from outside, or are bounded in the line itself.
OTHER_TEXTS = {
    "admin/output.py": "an argument of the command line",
    "config/relations.py": "settings; their length is checked",
    "config/setting.py": "settings; their length is checked",
    "message/numbers.py": "the parser",
    "remoting/fastjson.py": "a literal that its pattern has found, of bounded length",
    "bench/proc.py": "names in /proc",
    "cli/doctor.py": "the kernel's release",
    "cli/liveness.py": "names in /proc",
    "console/message_search.py": "at most 19 digits",
    "store/backup/backup.py": "names of files",
    "store/backup/log.py": "names of files",
    "store/services/cleaning.py": "settings; checked by config/relations.py",
    "spark/jobs/archive_log.py": "names of files",
    "spark/jobs/target.py": "names of files",
    "store/formats/consume_queue_ext.py": "names of files",
    "store/files.py": "names of files",
    "store/formats/index_file.py": "names of files",
    "store/inspection/log_check.py": "names of files",
    "store/inspection/queue_check.py": "names of files",
    "store/recovery/queue_loading.py": "names of files",
    "store/inspection/reader.py": "names of files",
    "tls/certificates.py": "the time of a certificate, of fixed length",
}


def test_no_other_place_asks_whether_a_text_is_a_number() -> None:
    asking = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if any(name in text_of(path) for name in QUESTIONS)  # few have to be parsed
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute) and node.attr in QUESTIONS
    }
    assert asking == set(OTHER_TEXTS)
