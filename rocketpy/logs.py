"""The log of a server: one line per event on standard error, which services collect and terminals show.

A line is text, or with `logFormat=json` an object. Its fields are read from the text of the event, in which a noun
stands before each value: "group %s cannot filter topic %s" gives `group` and `topic`. While a request is served, each
line has its connection and opaque, in every process that it passes.

LogLimit bounds repeated lines: events that clients or a failing disk cause again and again must not fill the log.
"""

from __future__ import annotations

import contextvars
import functools
import json
import logging
import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path

import attrs

LOG_INTERVAL_S = 60.0
FORMATS = ("text", "json")
FORMAT_VARIABLE = "ROCKETPY_LOG_FORMAT"  # of commands that have no configuration
TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
NAMES = ("connection", "opaque", "topic", "group", "queue", "offset")
NOUNS = {"log offset": "logOffset", "served request": "request", "answered": "code", "duration": "durationMs"}
NOUNS |= {name: name for name in NAMES}
STDERR = 2
NO_VALUE = "-"
PRIORITIES = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}  # of syslog
_VALUE = re.compile(r"%(?:[-#0+]*+[\d.]*+[a-zA-Z]|%)")  # possessive: `%000...` takes the square of its length else
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # of a terminal: names and remarks of peers are in lines
_NOUN = re.compile(rf"\b({'|'.join(NOUNS)}) $")

serving: contextvars.ContextVar[tuple[int, int] | None] = contextvars.ContextVar("serving", default=None)
"""(connection, opaque) of the request that is being served."""


def set_up_logging(level: str, log_format: str) -> None:
    """Set the log up, once per server, before workers are forked, which inherit it. `log_format`: of FORMATS."""
    handler = logging.StreamHandler(sys.stderr)
    lines = JsonLines() if log_format == "json" else TextLines()
    handler.setFormatter(JournalLines(lines) if is_journal(STDERR) else lines)
    logging.basicConfig(level=level, handlers=[handler])


def set_up_logging_of_command(environment: Mapping[str, str] = os.environ) -> None:
    """Set up the log of a command if the environment names a format; an unknown one ends the process."""
    log_format = environment.get(FORMAT_VARIABLE)
    if log_format is None:
        return
    if log_format not in FORMATS:
        sys.exit(f"rocketpy: {FORMAT_VARIABLE}={log_format} is none of {', '.join(FORMATS)}")
    set_up_logging("WARNING", log_format)


def is_journal(descriptor: int, environment: Mapping[str, str] = os.environ) -> bool:
    """Return True if the descriptor leads to the journal of systemd, which reads the priority of a line."""
    status = os.fstat(descriptor)
    return environment.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


class TextLines(logging.Formatter):
    """Lines for people, a traceback in the line of its event."""

    def __init__(self) -> None:
        super().__init__(TEXT)

    def format(self, record: logging.LogRecord) -> str:
        line = " | ".join(part.strip() for part in super().format(record).splitlines() if part.strip())
        if (request := serving.get()) is not None:
            line += f" [connection {request[0]:x}, opaque {request[1]}]"
        return _without_controls(line)


class JournalLines(logging.Formatter):
    """Lines that begin with their priority, which the journal of systemd takes off."""

    def __init__(self, lines: logging.Formatter) -> None:
        super().__init__()
        self._lines = lines

    def format(self, record: logging.LogRecord) -> str:
        return f"<{PRIORITIES.get(record.levelname, 6)}>{self._lines.format(record)}"


class JsonLines(logging.Formatter):
    """Lines for programs. `event` is the text of an event with `...` for each value; `message` has the values."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.gmtime(record.created)
        fields: dict[str, object] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', moment)}.{record.msecs:03.0f}Z",
            "level": record.levelname,
            "process": process_name(record.process or 0),
            "pid": record.process,
            "logger": record.name,
            "event": event_of(str(record.msg)),
            "message": record.getMessage(),
        }
        if (request := serving.get()) is not None:
            fields |= {"connection": f"{request[0]:x}", "opaque": request[1]}
        fields |= fields_of(record)
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return _without_controls(json.dumps(fields, ensure_ascii=False, default=str))


def _without_controls(line: str) -> str:
    """Return the line with its control characters as JSON writes them."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


@functools.lru_cache
def process_name(pid: int) -> str:
    """Return the name of a worker, as `ps` shows it. `pid` is this process, which may have been forked just now."""
    try:
        return Path("/proc/self/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return str(pid)


@functools.lru_cache(maxsize=1024)
def event_of(text: str) -> str:
    """Return the text of an event without its values."""
    return _VALUE.sub(lambda found: "%" if found[0] == "%%" else "...", text)


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """Return the values of an event that its text names, numbers as numbers, all others in the format of the text."""
    values = record.args if isinstance(record.args, tuple) else ()
    fields: dict[str, object] = {}
    for place, name, conversion in _named_values(str(record.msg)):
        if place < len(values) and values[place] != NO_VALUE:
            value = values[place]
            if isinstance(value, int) and not conversion.endswith("x"):
                fields[name] = value
            else:
                fields[name] = float(conversion % value) if isinstance(value, float) else conversion % (value,)
    return fields


@functools.lru_cache(maxsize=1024)
def _named_values(text: str) -> tuple[tuple[int, str, str], ...]:
    """List (place, field, conversion) of the values in a text that follow on a noun."""
    values = [found for found in _VALUE.finditer(text) if found[0] != "%%"]
    nouns = ((place, found, _NOUN.search(text, 0, found.start())) for place, found in enumerate(values))
    return tuple((place, NOUNS[noun[1]], found[0]) for place, found, noun in nouns if noun is not None)


@attrs.define
class _Kind:
    logged_s: deque[float]  # when its last lines were written
    untold: int = 0  # events since then


class LogLimit:
    """A line of each kind in `interval_s`, with the number of events since the one before. For several threads.

    Args:
        now_s: seconds that only grow.
        lines: of each kind in `interval_s`, where each of a few events is to have its own line.
    """

    def __init__(
        self, interval_s: float = LOG_INTERVAL_S, now_s: Callable[[], float] = time.monotonic, lines: int = 1
    ) -> None:
        self._interval_s, self._lines = interval_s, lines
        self._now_s = now_s
        self._lock = threading.Lock()
        self._kinds: dict[Hashable, _Kind] = {}

    def take(self, kind: Hashable = None, count: int = 1) -> int:
        """`count` more events of a kind (of a bounded number of kinds) have happened.

        Returns: how many events a line is to tell now, these included; 0: no line now.
        """
        with self._lock:
            known = self._kinds.setdefault(kind, _Kind(deque(maxlen=self._lines)))
            known.untold += count
            now_s = self._now_s()
            is_due = len(known.logged_s) < self._lines or now_s - known.logged_s[0] >= self._interval_s
            if not is_due or not known.untold:
                return 0
            known.logged_s.append(now_s)
            told, known.untold = known.untold, 0
            return told


def and_more(told: int) -> str:
    """For a line about the last of `told` events: what it says of the others."""
    return f" (and {told - 1} more since the last line about it)" if told > 1 else ""
