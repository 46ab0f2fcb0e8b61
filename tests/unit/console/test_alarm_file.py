from __future__ import annotations

import re
from pathlib import Path

import pytest

from rocketpy.console import alarm_file
from rocketpy.console.alarm_file import AlarmFileInvalid, AlarmSettings, BrokerLimits, GroupRule, read_alarm_file
from tests.support.cases import cases
from tests.support.doc_examples import Page

WHOLE = """
link = "https://console.example.com/"
repeat_minutes = 30
[webhook]
url = "http://127.0.0.1:9/hook"
timeout_s = 2
authorization_file = "SECRET"
[mail]
server = "[::1]:587"
security = "none"
from = "console@example.com"
to = ["a@example.com", "b@example.com"]
user = "console"
password_file = "SECRET"
[[group]]
name = "billing"
backlog = 10_000
[[group]]
name = "shop-*"
age_minutes = 2.5
[broker]
disk_percent = 90
no_master_seconds = 10
failed_sends = 7
clock_seconds = 2.5
"""


def written(tmp_path: Path, text: str) -> Path:
    (tmp_path / "secret").write_text("Bearer abc\nsecond line\n")
    path = tmp_path / "alarms.toml"
    path.write_text(text.replace("SECRET", str(tmp_path / "secret")))
    return path


def test_the_page_for_operators_shows_every_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing: list[str] = []

    def known(table: alarm_file._Table, *keys: str) -> None:
        missing.extend(table.place + key for key in set(keys) - table.content.keys())

    monkeypatch.setattr(alarm_file._Table, "known", known)
    (example,) = Page.read("run/console.md").blocks("Alarms")
    read_alarm_file(written(tmp_path, re.sub('"/etc/rocketpy/.*?"', '"SECRET"', example)))
    assert not missing


def test_a_whole_file(tmp_path: Path) -> None:
    settings = read_alarm_file(written(tmp_path, WHOLE))
    assert settings.link == "https://console.example.com"
    assert settings.webhook is not None
    assert settings.mail is not None
    assert (settings.webhook.authorization, settings.mail.password) == ("Bearer abc", "Bearer abc")
    assert (settings.mail.host, settings.mail.port, settings.mail.to) == (
        "::1",
        587,
        ("a@example.com", "b@example.com"),
    )
    assert settings.groups == (GroupRule("billing", backlog=10_000), GroupRule("shop-*", age_minutes=2.5))
    assert settings.broker == BrokerLimits(disk_percent=90, no_master_seconds=10, failed_sends=7, clock_seconds=2.5)
    assert settings.named_groups == {"billing"}
    assert [settings.wants_age(group) for group in ("billing", "shop-1", "other")] == [False, True, False]
    assert "abc" not in repr(settings)


def test_the_first_rule_that_fits_counts_also_when_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alarm_file, "KNOWN_MAX", 2)
    first, second = GroupRule("a*", backlog=1), GroupRule("*", backlog=2)
    settings = AlarmSettings(groups=(first, second))
    for _ in range(2):
        assert [settings.rule_of(name) for name in ("ab", "b", "c", "abc")] == [first, second, second, first]
    assert AlarmSettings().rule_of("a") is None


def test_an_empty_file_watches_disks_and_masters(tmp_path: Path) -> None:
    settings = read_alarm_file(written(tmp_path, ""))
    assert (settings.broker.disk_percent, settings.broker.no_master_seconds, settings.groups) == (85, 30, ())


@cases(
    "text, fault",
    [
        ("link = 1", "link: expected a text of one line, found 1"),
        ("link = 'ftp://x'", "link: expected http://"),
        ("colour = 1", "colour: not known; write one of link, repeat_minutes"),
        ("repeat_minutes = true", "repeat_minutes: expected a number from 1 to 10080, found True"),
        ("repeat_minutes = 0", "repeat_minutes: expected a number from 1 to 10080, found 0"),
        ("webhook = 'x'", "webhook: expected a table, [webhook]"),
        ("[webhook]", "webhook.url: missing; add it"),
        ("[webhook]\nurl = 'file:///etc/passwd'", "webhook.url: expected http://"),
        ("[webhook]\nurl = 'http://[::1'", "webhook.url: expected http://"),
        (
            "[webhook]\nurl = 'http://x'\nauthorization_file = '/none/x'",
            "webhook.authorization_file: /none/x cannot be",
        ),
        ("[mail]\nserver = 'x'\nfrom = 'a@b'\nto = ['c@d']", "mail.server: expected HOST:PORT"),
        (f"[mail]\nserver = 'x:{'9' * 5000}'\nfrom = 'a@b'\nto = ['c@d']", "mail.server: expected HOST:PORT"),
        ("[mail]\nserver = 'x:25'\nfrom = 'a@b'\nto = []", "mail.to: expected 1 to 100 addresses"),
        ("[mail]\nserver = 'x:25'\nfrom = 'a@b'\nto = ['c@d, e@f']", "mail.to: expected 1 to 100 addresses"),
        ("[mail]\nserver = 'x:25'\nfrom = 'a@b'\nto = ['operator@']", "mail.to: expected 1 to 100 addresses"),
        ("[mail]\nserver = 'x:25'\nfrom = 'a@['\nto = ['c@d']", "mail.from: expected an address"),
        ("[mail]\nserver = 'x:25'\nfrom = 'nobody'\nto = ['c@d']", "mail.from: expected an address"),
        ("[mail]\nserver = 'x:25'\nfrom = 'a@b'\nto = ['c@d']\nuser = 'u'", "mail.user: user and password_file belong"),
        ("[mail]\nserver = 'x:25'\nfrom = 'a@b'\nto = ['c@d']\nsecurity = 'ssl'", "mail.security: expected one of"),
        ("[[group]]\nbacklog = 1", "group[1].name: missing; add it"),
        ("[[group]]\nname = 'g'", "group[1].backlog: missing, and so is age_minutes"),
        ("[[group]]\nname = 'g'\nbacklog = 1.5", "group[1].backlog: expected a whole number"),
        ("[group]\nname = 'g'", "group: expected at most 1000 tables, [[group]]"),
        ("[broker]\ndisk_percent = 101", "broker.disk_percent: expected a number from 1 to 100, found 101"),
        (
            "[broker]\nworker_silent_seconds = 2",  # each worker that rests would be one
            "broker.worker_silent_seconds: expected a number from 3 to 86400, found 2",
        ),
        ("=", "no TOML: "),
    ],
)
def test_a_fault_is_one_line_with_its_place(text: str, fault: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(AlarmFileInvalid) as refused:
        read_alarm_file(path)
    (line,) = str(refused.value).splitlines()
    assert line.startswith(f"{path}: {fault}"), line


def test_all_faults_are_told_together(tmp_path: Path) -> None:
    path = written(tmp_path, "link = 1\nrepeat_minutes = 0\n[[group]]\nname = 'g'\n")
    with pytest.raises(AlarmFileInvalid) as refused:
        read_alarm_file(path)
    assert len(str(refused.value).splitlines()) == 3


def test_a_file_that_is_not_there_or_too_large(tmp_path: Path) -> None:
    with pytest.raises(AlarmFileInvalid, match="correct --alarms"):
        read_alarm_file(tmp_path / "none.toml")
    with pytest.raises(AlarmFileInvalid, match="more than"):
        read_alarm_file(written(tmp_path, "# x\n" * 300_000))
