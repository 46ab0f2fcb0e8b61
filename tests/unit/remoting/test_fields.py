"""Number, boolean and language rules that both header serialisations share."""

import pytest

from rocketpy.codes import LanguageCode
from rocketpy.errors import HeaderInvalid
from rocketpy.remoting.fields import format_bool, language_or_none, parse_bool, parse_int, parse_long


def test_ranges() -> None:
    assert parse_int("-2147483648") == -(1 << 31) and parse_long("9223372036854775807") == (1 << 63) - 1
    for parse, text in ((parse_int, "2147483648"), (parse_long, "-9223372036854775809")):
        with pytest.raises(HeaderInvalid, match="within"):
            parse(text)


@pytest.mark.parametrize("text", ["", "+", "1.0", " 1", "0x10", "\u0661", "1" * 41])
def test_no_integers(text: str) -> None:
    with pytest.raises(HeaderInvalid):
        parse_long(text)


def test_booleans_and_languages() -> None:
    assert parse_bool("True") and not parse_bool("1")
    assert (format_bool(True), format_bool(False)) == ("true", "false")
    assert language_or_none(9) is LanguageCode.GO and language_or_none(99) is None
