"""A server of metrics whose values are those of promtool's tests, for a running Prometheus.

A minute of the tests is a second here: Prometheus scrapes once a second, and each scrape gets the next sample.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs

JOB = "rocketpy-broker"  # of series that name no job
UP = "up"  # Prometheus makes it itself: 0 where a target does not answer
SAMPLES = re.compile(r"(_|-?[\d.]+)([+-][\d.]+)?x(\d+)")
LABEL = re.compile(r'(\w+)="([^"]*)"')
# Their values are times. Those of promtool's tests count from the start of the test, those of Prometheus from 1970.
TIMES = (
    "rocketpy_clock_seconds",
    "rocketpy_registration_last_success_seconds",
    "rocketpy_tls_certificate_not_after_seconds",
    "rocketpy_namesrv_tls_certificate_not_after_seconds",
)


def samples(notation: str) -> list[float | None]:
    """Return the samples of a series, one a minute: None, None, 3, 3, 0, 5, 10 of "_x2 3x1 0+5x2"."""
    found: list[float | None] = []
    for start, step, times in SAMPLES.findall(notation):
        if start == "_":
            found += [None] * int(times)
        else:
            found += [float(start) + float(step or 0) * number for number in range(int(times) + 1)]
    return found


@attrs.define(eq=False)
class Target:
    """The series of one job and instance, by name and labels without these two."""

    job: str
    series: dict[str, list[float | None]] = attrs.field(factory=dict)
    scrapes: int = 0

    def page(self) -> str | None:
        """Return the page of the next scrape; None: it is to fail."""
        minute, lines = self.scrapes, []
        self.scrapes += 1
        for series, values in self.series.items():
            name = series.partition("{")[0]
            value = values[min(minute, len(values) - 1)]
            if name == UP and not value:
                return None
            if name == UP or value is None:
                continue
            if name in TIMES:
                value += time.time() - 60 * minute
            lines.append(f"{series} {value!r}\n")
        return "".join(lines)


@attrs.define(eq=False)
class Exporter:
    """Targets by instance, each a path of one HTTP server."""

    targets: dict[str, Target] = attrs.field(factory=dict)

    def add(self, case: str, series: Mapping[str, str]) -> None:
        """Serve series in promtool's notation. Their instances become CASE-INSTANCE, so that no two cases meet."""
        for name, notation in series.items():
            metric, _, rest = name.partition("{")
            labels = dict(LABEL.findall(rest))
            job, instance = labels.pop("job", JOB), f"{case}-{labels.pop('instance', '')}"
            kept = ",".join(f'{label}="{value}"' for label, value in labels.items())
            target = self.targets.setdefault(instance, Target(job))
            assert target.job == job, f"{instance} has two jobs"
            target.series[f"{metric}{{{kept}}}"] = samples(notation)

    @contextlib.contextmanager
    def serving(self) -> Iterator[list[dict[str, Any]]]:
        """Serve the targets on a loopback port. Returns: `scrape_configs` of a Prometheus that scrapes them."""
        with ThreadingHTTPServer(("127.0.0.1", 0), self._handler()) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                yield [self._job(name, server.server_port) for name in sorted({t.job for t in self.targets.values()})]
            finally:
                server.shutdown()
                thread.join()

    def _job(self, name: str, port: int) -> dict[str, Any]:
        places = [
            {
                "targets": [f"127.0.0.1:{port}"],
                "labels": {"instance": instance, "__metrics_path__": f"/{instance}"},
            }
            for instance, target in self.targets.items()
            if target.job == name
        ]
        return {"job_name": name, "static_configs": places}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        targets = self.targets

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = targets[self.path.removeprefix("/")].page()
                body = (page or "").encode()
                self.send_response(503 if page is None else 200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing."""

        return Handler
