"""Boolean and language rules that both header serialisations share."""

from rocketpy.codes import LanguageCode
from rocketpy.remoting.fields import format_bool, language_or_none, parse_bool


def test_booleans_and_languages() -> None:
    assert parse_bool("True") and not parse_bool("1")
    assert (format_bool(True), format_bool(False)) == ("true", "false")
    assert language_or_none(9) is LanguageCode.GO and language_or_none(99) is None
