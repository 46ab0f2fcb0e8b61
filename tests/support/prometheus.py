"""A real Prometheus on a loopback port, for tests of `deploy/prometheus` and `deploy/grafana`."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml

from tests.support.rules import ROOT
from tests.support.waiting import wait_until

FILES = ROOT / "deploy" / "prometheus"
UNPACKED = ROOT / "build" / "prometheus" / "usr" / "bin"  # `make test-deploy` unpacks Debian's package there
INTERVAL_S = 0.5  # between scrapes, and between evaluations of the rules
CHOICES = {"$__rate_interval": "20s", "$instance": ".*", "$group": ".*"}  # of the variables of dashboards
FIRES_S = 120.0  # a group that loses a member may first lose its lease on a busy machine, and elects again
DURATION = re.compile(r"(for: |\[|offset )(\d+)([smh])\b")  # of an alert, of a range
UNITS_S = {"s": 1, "m": 60, "h": 3600}
needs_prometheus = pytest.mark.skipif(
    not (shutil.which("promtool") or UNPACKED.is_dir()),
    reason="needs prometheus and promtool; `make test-deploy` unpacks them on Debian",
)


def tool(name: str) -> str:
    """Return the path of `prometheus` or `promtool`.

    Raises:
        AssertionError: there is none.
    """
    found = shutil.which(name, path=f"{UNPACKED}{os.pathsep}{os.environ['PATH']}")
    assert found is not None, f"{name} is neither installed nor unpacked in {UNPACKED}"
    return found


def promtool(*words: str | Path) -> str:
    """Run promtool and return its output.

    Raises:
        AssertionError: it found a fault.
    """
    done = subprocess.run([tool("promtool"), *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def alerts() -> list[dict[str, Any]]:
    """List the alerts of `deploy/prometheus/rules.yml`, as they stand there."""
    groups = yaml.safe_load((FILES / "rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def minutes_as_seconds(rules: str) -> str:
    """Return the text of rules whose `for:`, ranges and offsets are a sixtieth as long."""
    return DURATION.sub(lambda found: f"{found[1]}{int(found[2]) * UNITS_S[found[3]] * 1000 // 60}ms", rules)


@attrs.frozen
class Prometheus:
    """A running server."""

    port: int

    def api(self, path: str, **values: str) -> Any:
        """Return the data that the HTTP API answers.

        Raises:
            urllib.error.HTTPError: it refuses the request, such as a query with a fault.
        """
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(values)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return labels and value of each series of an instant query."""
        found = self.api("query", query=expression)["result"]
        return [(each["metric"], float(each["value"][1])) for each in found]

    def firing(self) -> dict[str, dict[str, Any]]:
        """Return the alerts that fire, by name; of several one."""
        found = self.api("alerts")["alerts"]
        return {each["labels"]["alertname"]: each for each in found if each["state"] == "firing"}

    def all_firing(self) -> list[dict[str, str]]:
        """Return the labels of all alerts that fire."""
        return [each["labels"] for each in self.api("alerts")["alerts"] if each["state"] == "firing"]

    def fires(self, alert: str, **labels: str) -> bool:
        """Return True if the alert fires for a series with these labels."""
        wanted = ",".join(f'{name}="{value}"' for name, value in {"alertname": alert, **labels}.items())
        return bool(self.query(f'ALERTS{{alertstate="firing",{wanted}}}'))

    def wait_until_fires(self, alert: str) -> dict[str, Any]:
        wait_until(lambda: alert in self.firing(), f"the alert {alert}", FIRES_S)
        return self.firing()[alert]

    def wait_until_panels_have_data(self, dashboard: Path) -> None:
        """Return when each query of a dashboard of `deploy/grafana` has a value; fail for one that gets none."""
        for panel in json.loads(dashboard.read_text())["panels"]:
            for target in panel["targets"]:
                query = target["expr"]
                for name, value in CHOICES.items():
                    query = query.replace(name, value)
                wait_until(lambda query=query: self._has_data(query), f"data of {panel['title']}: {query}")  # type: ignore[misc]

    def _has_data(self, query: str) -> bool:
        return any(math.isfinite(value) for _, value in self.query(query))


@contextlib.contextmanager
def running_prometheus(
    directory: Path, port: int, targets: Mapping[str, Sequence[int]], topic: str = "TOPIC", span: str = ""
) -> Iterator[Prometheus]:
    """Run Prometheus with the files of `deploy/prometheus`, with short intervals and alerts that wait for nothing.

    Args:
        targets: ports on this machine by the name of their job.
        topic: whose queues are scraped.
        span: in place of the minutes in which alerts look for events, so that they resolve soon.
    """
    config = yaml.safe_load((FILES / "prometheus.yml").read_text())
    every = f"{INTERVAL_S * 1000:g}ms"
    config["global"] = {"scrape_interval": every, "evaluation_interval": every}
    for job in config["scrape_configs"]:
        if "params" in job:
            job["params"]["queues"] = [topic]
        job["static_configs"] = [{"targets": [f"127.0.0.1:{port}" for port in targets.get(job["job_name"], ())]}]
    rules = re.sub(r"^ +for: .*\n", "", (FILES / "rules.yml").read_text(), flags=re.MULTILINE)
    if span:
        rules = re.sub(r"\[\d+m\]", f"[{span}]", rules)
    with prometheus_of(directory, port, config, rules) as server:
        yield server


@contextlib.contextmanager
def prometheus_of(directory: Path, port: int, config: Mapping[str, Any], rules: str) -> Iterator[Prometheus]:
    """Run Prometheus with this configuration, and with these rules as its file `rules.yml`."""
    (directory / "prometheus.yml").write_text(yaml.safe_dump(dict(config)))
    (directory / "rules.yml").write_text(rules)
    words = [tool("prometheus"), f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data"]
    log = directory / "prometheus.log"
    with log.open("wb") as output:
        process = subprocess.Popen([*words, f"--web.listen-address=127.0.0.1:{port}"], stdout=output, stderr=output)
    try:
        server = Prometheus(port)
        wait_until(lambda: _serves(server, process, log), "Prometheus")
        yield server
    finally:
        process.kill()
        process.wait()


def _serves(server: Prometheus, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    with contextlib.suppress(OSError):
        return bool(server.api("status/runtimeinfo"))
    return False
