"""Waiting for another thread or process to get somewhere; bounded, and never a fixed sleep. Metrics, which show it."""

from __future__ import annotations

import select
import time
import urllib.request
from collections.abc import Callable

DEADLINE_S = 30.0
PAUSE_MAX_S = 0.02


def wait_until(
    condition: Callable[[], bool],
    what: str = "the condition",
    within_s: float = DEADLINE_S,
    *,
    pause_s: float = 0.001,
) -> None:
    """Return soon after `condition()` holds; fail after a time that no working machine needs.

    A pause is a fourth longer than the one before it: conditions that read metrics or files cost milliseconds each.
    """
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come about"
        time.sleep(pause_s)
        pause_s = max(pause_s, min(1.25 * pause_s, PAUSE_MAX_S))


def is_readable(descriptor: int, timeout_s: float | None) -> bool:
    """Return True if it is readable within `timeout_s`. By poll, because select fails for descriptors from 1024 on."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(None if timeout_s is None else timeout_s * 1000))


def fresh_metrics(url: str) -> urllib.request.Request:
    """A scrape that shows this moment: scrapes in a usual form share a text for a second."""
    return urllib.request.Request(url, headers={"Accept": "text/plain;version=1.0.0;escaping=values"})


def metrics_page(port: int) -> str:
    """Return the metrics page of a server of this machine."""
    with urllib.request.urlopen(fresh_metrics(f"http://127.0.0.1:{port}/metrics"), timeout=60) as answer:
        return str(answer.read().decode())


def metric(port: int, name: str) -> float:
    """The sum of the samples whose line begins with `name`."""
    return sum(float(line.rsplit(" ", 1)[1]) for line in metrics_page(port).splitlines() if line.startswith(name))
