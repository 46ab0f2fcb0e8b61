"""The report of `rocketpy doctor`, whose texts come from servers, errors and paths."""

from __future__ import annotations

import pytest

from rocketpy.cli.findings import Finding, report


def test_texts_are_shown_as_they_are(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: An IPv6 address in brackets was left out as markup, and a path in brackets ended the report.

    A broker's name could clear the screen.
    """
    monkeypatch.setenv("COLUMNS", "200")
    text = "[fe80::1]:10911 [/data] \x1b[2J\x07"
    assert report([Finding(text, "a"), Finding("b", text), Finding("c", "d", text, is_fatal=True)]) == 1
    shown = "".join(capsys.readouterr().out.split())
    for word in ("[fe80::1]:10911", "[/data]", "\\x1b[2J", "\\x07"):
        assert shown.count(word) == 3, shown
    assert "\x1b" not in shown
