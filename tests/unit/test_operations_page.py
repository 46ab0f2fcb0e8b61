"""The pages for operators: the metrics, properties, commands, files and log lines that they name exist, and each
warning or error has its remedy."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from rocketpy.admin.commands import REGISTRY
from rocketpy.failover.rules.fences import MARGIN_S
from tests.support import prometheus
from tests.support.doc_examples import Page
from tests.support.rules import ROOT, enough, hold, name_of

PAGES = (
    "run/install.md",
    "run/upgrade.md",
    "run/addresses.md",
    "run/docker.md",
    "run/kubernetes.md",
    "run/tls.md",
    "run/when-something-goes-wrong.md",
    "run/monitor.md",
    "run/console.md",
    "run/backup-and-repair.md",
    "run/replication.md",
    "run/failover.md",
    "run/automatic-failover.md",
    "understand/known-limits.md",
)
TEXT = "\n".join(Page.read(page).text for page in PAGES)
METRICS = (ROOT / "docs" / "run" / "metrics.md").read_text()
PROPERTIES = (ROOT / "docs" / "run" / "configuration.md").read_text()
LOG_LINES = runpy.run_path(str(ROOT / "docs" / "run" / "log_lines.py"))
LOGS = (  # the packages of libraries that write lines, and the page that explains them in its section "Log lines"
    ("client", "use/client.md"),
    ("spark", "use/spark.md"),
)
HEADING = "Log lines"


def named(pattern: str) -> list[str]:
    """List the names on the pages, each once."""
    found = sorted(set(re.findall(pattern, TEXT)))
    assert len(found) > 3, f"the pages have nothing like {pattern}"
    return found


def test_metrics() -> None:
    missing = (name for name in named(r"\brocketpy_[a-z_]+") if f"`{name}`" not in METRICS)
    hold(missing, "name a metric of docs/run/metrics.md")


def test_properties() -> None:
    """Names with a capital inside are properties, unless they are commands of mqadmin."""
    names = (name for name in named(r"`([a-z]+[A-Z]\w+)(?:=\w+)?`") if name not in REGISTRY)
    hold((name for name in names if f"`{name}`" not in PROPERTIES), "name a property of docs/run/configuration.md")


def test_commands() -> None:
    hold((name for name in named(r"mqadmin (\w+)") if name not in REGISTRY), "name a command that mqadmin has")


def test_files() -> None:
    """N is one of the three hosts of the sample."""
    paths = (path.replace("-N.", "-one.") for path in named(r"\b(?:deploy|docs)/[\w./-]+\w"))
    hold((path for path in paths if not list(ROOT.glob(f"{path}*"))), "name a file that is there")


def test_each_alert_has_its_section() -> None:
    alerts = enough(prometheus.alerts(), 30, "alerts")
    sections = re.findall(r"^### (Rocketpy\w+)\n\n[^#\s]", Page.read("run/monitor.md").text, re.MULTILINE)
    assert sections == [rule["alert"] for rule in alerts]
    links = (rule["annotations"]["runbook_url"] for rule in alerts)
    assert list(links) == [f"docs/run/monitor.md#{rule['alert'].lower()}" for rule in alerts]


def test_the_dashboards_are_generated_and_name_metrics() -> None:
    made = runpy.run_path(str(ROOT / "deploy" / "grafana" / "dashboards.py"))
    files = {name: (ROOT / "deploy" / "grafana" / f"{name}.json").read_text() for name in made["DASHBOARDS"]}
    assert files == {name: made["dashboard"](name, rows) for name, rows in made["DASHBOARDS"].items()}, "run make docs"
    names = set(re.findall(r"(?<!:)\brocket(?:py|mq)_\w+", " ".join(files.values())))
    missing = (name for name in sorted(names) if f"`{name.removesuffix('_bucket')}`" not in METRICS)
    hold(missing, "name a metric of docs/run/metrics.md")


@pytest.mark.parametrize("name", ["single", "cluster"])
def test_compose_names_each_server_for_prometheus(name: str) -> None:
    found = yaml.safe_load((ROOT / f"deploy/compose/{name}.yaml").read_text())
    servers = {service for service, keys in found["services"].items() if keys["image"] == "rocketpy"}
    targets = yaml.safe_load(found["configs"]["scraped"]["content"])
    assert {target for each in targets for target in each["targets"]} == {f"{server}:5557" for server in servers}


def test_the_margin_of_the_lease_fence() -> None:
    assert f"no send later than {MARGIN_S:g} s before its lease" in " ".join(Page.read("run/failover.md").text.split())


# --- log lines --------------------------------------------------------------------------------------------------------


def literals() -> str:
    """All source text, the parts of a string that is split over lines joined."""
    sources = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "rocketpy").rglob("*.py"))]
    return re.sub(r'"\s*\n\s*f?"', "", "\n".join(sources))


def rows_of(page: str, heading: str) -> list[str]:
    """List the lines in the first cells of a section's tables, and at the beginnings of its list items."""
    rows = re.findall(r"^(?:\| (`[^|]+`) \||- (`.+?`): )", Page.read(page).section(heading), re.MULTILINE)
    return [line for row in rows for line in re.findall(r"`([^`]+)`", "".join(row))]


def test_log_lines() -> None:
    source = literals()
    sections = sorted({*((page, HEADING) for _, page in LOGS), ("run/automatic-failover.md", "Disasters")})
    words = [line for section in sections for line in rows_of(*section)]
    words += [line for entry in LOG_LINES["entries"]() for line in entry.words]
    pieces = ((line, piece) for line in enough(words, 200, "log lines") for piece in LOG_LINES["pieces"](line))
    hold((f"{line}: {piece}" for line, piece in pieces if piece not in source), "name a line that is logged")


def logged(*packages: str) -> Iterator[Any]:
    for path in (path for name in packages for path in sorted((ROOT / "rocketpy" / name).rglob("*.py"))):
        yield from (line for line in LOG_LINES["lines_of"](path) if line.level != "info")


@pytest.mark.parametrize(("package", "page"), LOGS)
def test_each_warning_of_a_library_has_a_row_that_begins_as_it_does(package: str, page: str) -> None:
    """A user searches a page for the first words of a line."""
    rows = rows_of(page, HEADING)
    hold(
        (
            f"{name_of(line.module)}: {line.text}"
            for line in enough(logged(package), 15, "log lines")
            if not any(LOG_LINES["begins"](line.text, row) for row in rows)
        ),
        f"add the line's first words to docs/{page}, {HEADING}, with the remedy",
    )


def test_each_warning_of_a_server_has_a_remedy() -> None:
    """The page is made of the sources, so it has each line; somebody has to write what to do."""
    known = list(LOG_LINES["entries"]())
    found = [line for line in enough(LOG_LINES["lines"](), 150, "log lines") if line.level != "info"]
    hold(
        (f"{name_of(line.module)}: {line.text}" for line in found if LOG_LINES["entry_of"](line, known) is None),
        "add the line's first words to docs/run/log_lines.py, with the remedy, and run make docs",
    )


def test_lines_begin_with_constant_text() -> None:
    """So that lines of one event can be found and counted."""
    lines = enough(LOG_LINES["lines"](), 150, "log lines")
    hold(
        (f"{name_of(line.module)}: {line.text}" for line in lines if line.text.startswith("%")),
        "name the event first, and then the thing",
    )
