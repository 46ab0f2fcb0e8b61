"""The file of alarms: TOML, checked as a whole; each fault is one line that names the place and the remedy.

docs/run/console.md shows a file with every key.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs

from rocketpy.errors import ConfigError
from rocketpy.message.numbers import int_or

FILE_BYTES_MAX = 1 << 20
RULES_MAX = 1000
KNOWN_MAX = 50_000  # groups whose rules are kept
ADDRESSES_MAX = 100
SECRET_BYTES_MAX = 4096
SILENT_MIN_S = 3  # a worker that rests sends a heartbeat each two seconds
SECURITIES = ("starttls", "tls", "none")
MISSING = object()


@attrs.frozen
class Webhook:
    """A POST with a JSON object goes to `url`. Redirects are not followed."""

    url: str
    timeout_s: float = 5.0
    authorization: str | None = attrs.field(default=None, repr=False)


@attrs.frozen
class Mail:
    """A mail goes by SMTP to all addresses of `to`."""

    host: str
    port: int
    sender: str
    to: tuple[str, ...]
    security: str = "starttls"
    timeout_s: float = 10.0
    user: str | None = None
    password: str | None = attrs.field(default=None, repr=False)


@attrs.frozen
class GroupRule:
    """Limits of the groups whose names fit. None: no limit."""

    name: str
    backlog: int | None = None
    age_minutes: float | None = None

    @property
    def is_pattern(self) -> bool:
        return any(sign in self.name for sign in "*?[")

    def fits(self, group: str) -> bool:
        return fnmatchcase(group, self.name)


@attrs.frozen
class BrokerLimits:
    """Limits of each broker, and of each name of brokers (no master). Counts are those of the last `window_minutes`."""

    disk_percent: float = 85.0
    no_master_seconds: float = 30.0
    no_answer_seconds: float = 30.0
    worker_silent_seconds: float = 5.0
    worker_restarts: int = 0
    failed_sends: int = 0
    refused_connections: int = 0
    unread_connections: int = 0
    certificate_days: float = 14.0
    clock_seconds: float = 5.0
    window_minutes: float = 10.0


BROKER_COUNTS = ("worker_restarts", "failed_sends", "refused_connections", "unread_connections")


@attrs.frozen
class AlarmSettings:
    """The content of the file. Without a webhook and without mail, alarms are shown on the pages only."""

    link: str = ""
    repeat_minutes: float = 60.0
    webhook: Webhook | None = None
    mail: Mail | None = None
    groups: tuple[GroupRule, ...] = ()
    broker: BrokerLimits = BrokerLimits()
    _rules: dict[str, GroupRule | None] = attrs.field(init=False, factory=dict, eq=False, repr=False)  # by group

    @property
    def named_groups(self) -> frozenset[str]:
        return frozenset(rule.name for rule in self.groups if not rule.is_pattern)

    def rule_of(self, group: str) -> GroupRule | None:
        """Return the first rule that fits. Answers are kept: all groups are looked at each few seconds."""
        if group not in self._rules:
            if len(self._rules) >= KNOWN_MAX:
                self._rules.clear()
            self._rules[group] = next((rule for rule in self.groups if rule.fits(group)), None)
        return self._rules[group]

    def wants_age(self, group: str) -> bool:
        rule = self.rule_of(group)
        return rule is not None and rule.age_minutes is not None


class AlarmFileInvalid(ConfigError):
    """All faults of the file, one line each."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))


def read_alarm_file(path: Path) -> AlarmSettings:
    """Read the file, and the files of secrets that it names.

    Raises:
        AlarmFileInvalid: every fault, with its place and the remedy.
    """
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise AlarmFileInvalid([f"{path}: it has more than {FILE_BYTES_MAX} bytes; remove rules"])
        content = tomllib.loads(data.decode())
    except OSError as error:
        raise AlarmFileInvalid([f"{path}: cannot be read: {error.strerror}; correct --alarms"]) from error
    except ValueError as error:  # of TOML, or of UTF-8
        raise AlarmFileInvalid([f"{path}: no TOML: {error}; correct the line"]) from error
    faults: list[str] = []
    settings = _settings(_Table(content, str(path), "", faults))
    if faults:
        raise AlarmFileInvalid(faults)
    return settings


@attrs.frozen
class _Table:
    """A table of the file. Values that are wrong become faults, and their defaults."""

    content: Mapping[str, Any]
    file: str
    place: str
    faults: list[str]

    def fault(self, key: str, text: str) -> None:
        self.faults.append(f"{self.file}: {self.place}{key}: {text}")

    def known(self, *keys: str) -> None:
        for key in self.content.keys() - set(keys):
            self.fault(key, f"not known; write one of {', '.join(keys)}")

    def number(self, key: str, low: float, high: float, default: Any, kind: Callable[[Any], Any] = float) -> Any:
        value = self.content.get(key, MISSING)
        if value is MISSING:
            return default
        expected = f"expected a{' whole' if kind is int else ''} number from {low:g} to {high:g}, found {value!r}"
        is_number = isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
        if not is_number or not low <= value <= high:
            self.fault(key, expected)
            return default
        return kind(value)

    def text(self, key: str, default: Any = None, *, needed: bool = False) -> Any:
        value = self.content.get(key, MISSING)
        if value is MISSING:
            if needed:
                self.fault(key, "missing; add it")
            return default
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            self.fault(key, f"expected a text of one line, found {value!r}")
            return default
        return value

    def secret(self, key: str) -> str | None:
        """Return the first line of the file that `key` names."""
        name = self.text(key)
        if name is None:
            return None
        try:
            with open(name, encoding="utf-8") as file:
                secret = file.readline(SECRET_BYTES_MAX).strip()
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
            self.fault(key, f"{name} cannot be read: {why}; correct the name or the file")
            return None
        if not secret or not secret.isprintable():
            self.fault(key, f"the first line of {name} is empty or not printable; write the secret there")
        return secret

    def table(self, key: str) -> _Table | None:
        value = self.content.get(key, MISSING)
        if value is MISSING:
            return None
        if not isinstance(value, dict):
            self.fault(key, f"expected a table, [{key}], found {value!r}")
            return None
        return _Table(value, self.file, f"{self.place}{key}.", self.faults)

    def tables(self, key: str) -> list[_Table]:
        value = self.content.get(key, [])
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value) or len(value) > RULES_MAX:
            self.fault(key, f"expected at most {RULES_MAX} tables, [[{key}]]")
            return []
        return [_Table(one, self.file, f"{key}[{n}].", self.faults) for n, one in enumerate(value, 1)]


def _settings(root: _Table) -> AlarmSettings:
    root.known("link", "repeat_minutes", "webhook", "mail", "group", "broker")
    link = root.text("link", "")
    if link and _url_fault(link):
        root.fault("link", _url_fault(link))
    default = AlarmSettings()
    return AlarmSettings(
        link=link.rstrip("/"),
        repeat_minutes=root.number("repeat_minutes", 1, 10_080, default.repeat_minutes),
        webhook=_webhook(root.table("webhook")),
        mail=_mail(root.table("mail")),
        groups=tuple(_rule(table) for table in root.tables("group")),
        broker=_limits(root.table("broker") or _Table({}, root.file, "", root.faults)),
    )


def _limits(table: _Table) -> BrokerLimits:
    table.known(*(field.name for field in attrs.fields(BrokerLimits)))
    default = BrokerLimits()
    silent_s = table.number("worker_silent_seconds", SILENT_MIN_S, 86_400, default.worker_silent_seconds)
    return BrokerLimits(
        disk_percent=table.number("disk_percent", 1, 100, default.disk_percent),
        no_master_seconds=table.number("no_master_seconds", 1, 86_400, default.no_master_seconds),
        no_answer_seconds=table.number("no_answer_seconds", 1, 86_400, default.no_answer_seconds),
        worker_silent_seconds=silent_s,
        certificate_days=table.number("certificate_days", 0, 36_500, default.certificate_days),
        clock_seconds=table.number("clock_seconds", 1, 1e9, default.clock_seconds),
        window_minutes=table.number("window_minutes", 0.1, 60, default.window_minutes),
        **{key: table.number(key, 0, 1e15, getattr(default, key), int) for key in BROKER_COUNTS},
    )


def _url_fault(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    return "" if is_good and " " not in url and url.isascii() else f"expected http://... or https://..., found {url!r}"


def _webhook(table: _Table | None) -> Webhook | None:
    if table is None:
        return None
    table.known("url", "timeout_s", "authorization_file")
    url = table.text("url", "", needed=True)
    if url and _url_fault(url):
        table.fault("url", _url_fault(url))
    return Webhook(url, table.number("timeout_s", 1, 60, 5.0), table.secret("authorization_file"))


def _mail(table: _Table | None) -> Mail | None:
    if table is None:
        return None
    table.known("server", "security", "from", "to", "user", "password_file", "timeout_s")
    security = table.text("security", "starttls")
    if security not in SECURITIES:
        table.fault("security", f"expected one of {', '.join(SECURITIES)}, found {security!r}")
    host, colon, port = table.text("server", ":25", needed=True).rpartition(":")
    if not colon or not 0 < int_or(port, 0) < 65_536:
        table.fault("server", "expected HOST:PORT")
        port = "25"
    sender, to = table.text("from", "", needed=True), table.content.get("to")
    addresses = to if isinstance(to, list) else [to]
    if not 0 < len(addresses) <= ADDRESSES_MAX or not all(map(_is_address, addresses)):
        table.fault("to", f'expected 1 to {ADDRESSES_MAX} addresses, ["operator@example.com"], found {to!r}')
        addresses = [""]
    if sender and not _is_address(sender):
        table.fault("from", f"expected an address, found {sender!r}")
    user, password = table.text("user"), table.secret("password_file")
    if (user is None) != ("password_file" not in table.content):
        table.fault("user", "user and password_file belong together; give both or none")
    timeout_s = table.number("timeout_s", 1, 60, 10.0)
    return Mail(host.strip("[]"), int(port), sender, tuple(map(str, addresses)), security, timeout_s, user, password)


def _is_address(value: object) -> bool:
    """Return True for NAME@HOST without the signs that the library for mail reads as more than one address."""
    if not isinstance(value, str) or not value.isprintable() or set(value) & set(' ,;<>"()[]:\\'):
        return False
    name, _, host = value.partition("@")
    return bool(name and host) and "@" not in host


def _rule(table: _Table) -> GroupRule:
    table.known("name", "backlog", "age_minutes")
    rule = GroupRule(
        table.text("name", "", needed=True),
        table.number("backlog", 1, 1e15, None, int),
        table.number("age_minutes", 0.1, 525_600, None),
    )
    if not table.content.keys() & {"backlog", "age_minutes"}:
        table.fault("backlog", "missing, and so is age_minutes; give one of them, or both")
    return rule
