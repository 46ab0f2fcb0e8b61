"""The pages for operators: the metrics, properties, commands, files and log lines that they name exist, and each
warning or error has a row that begins with the line's first words."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpy.admin.commands import REGISTRY
from rocketpy.failover.rules.fences import MARGIN_S
from tests.support import prometheus
from tests.support.doc_examples import Page
from tests.support.rules import ROOT, enough, hold, name_of, nodes_of

PAGES = (
    "run/install.md",
    "run/upgrade.md",
    "run/addresses.md",
    "run/docker.md",
    "run/kubernetes.md",
    "run/tls.md",
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
SERVER = (
    "broker",
    "console",
    "failover",
    "namesrv",
    "processes",
    "reactor",
    "replication",
    "store",
    "tls",
    "transport",
)
LOGS = (  # the packages that write lines, the page and section that explains them
    (SERVER, "run/monitor.md", "Log lines"),
    (("client",), "use/client.md", "Log lines"),
    (("spark",), "use/spark.md", "Log lines"),
)
LEVELS = {"warning", "error", "exception", "critical"}
LEAST = 20  # characters of a text that says something without its values


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


def pieces(line: str) -> list[str]:
    """Return the fixed texts of a line: N, NAME, ADDRESS and ... stand for values, which may be texts of their own."""
    return [piece.strip() for piece in re.split(r"\bN\b|\bNAME\b|\bADDRESS\b|\.\.\.|: ", line) if piece.strip()]


SECTIONS = {(page, heading) for _, page, heading in LOGS} | {("run/automatic-failover.md", "Disasters")}


def test_log_lines() -> None:
    source = literals()
    lines = enough((line for section in sorted(SECTIONS) for line in rows_of(*section)), 100, "log lines")
    strange = (f"{line}: {piece}" for line in lines for piece in pieces(line) if piece not in source)
    hold(strange, "name a line that is logged")


def texts_of(node: ast.expr, module: Path) -> Iterator[str]:
    """Yield the strings that an argument may be; a value within one is shown as %s. Of a variable: each string that its
    function assigns to it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "%s" for part in node.values)
    elif isinstance(node, ast.Name):
        for found in ast.walk(function_of(node, module)):
            if isinstance(found, ast.Assign) and ast.unparse(found.targets[0]) == node.id:
                yield from () if isinstance(found.value, ast.Name) else texts_of(found.value, module)


def function_of(node: ast.expr, module: Path) -> ast.AST:
    """Return the function around a name: the last one that begins before it."""
    functions = (each for each in nodes_of(module) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    return max((each for each in functions if each.lineno < node.lineno), key=lambda each: each.lineno)


def logged(package: str) -> Iterator[tuple[Path, str]]:
    """Yield the texts that a package logs at WARNING and above, and those of supervisor and guardian."""
    for path in enough(sorted((ROOT / "rocketpy" / package).rglob("*.py")), 3, f"modules of {package}"):
        for call in nodes_of(path):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
                continue
            if call.func.attr in LEVELS | {"_warn"} or ast.unparse(call.func) == "self.process.log":
                texts = (text for argument in call.args[:2] for text in texts_of(argument, path))
                yield from ((path, text) for text in texts if len(re.sub("%[a-z]", "", text)) > LEAST)


def begins(text: str, line: str) -> bool:
    """Return True if `line` is the beginning of `text`, or of what follows its first value (`group %s: `)."""
    lead = r"(?:failover: )?(?:(?:[a-z]+ ){0,3}%[.\w]+\W*){0,2}"
    return re.match(lead + ".*?".join(map(re.escape, pieces(line))), text) is not None


@pytest.mark.parametrize(("packages", "page", "heading"), LOGS)
def test_each_warning_has_a_row_that_begins_as_it_does(packages: tuple[str, ...], page: str, heading: str) -> None:
    """An operator searches a page for the first words of a line."""
    found = enough((each for package in packages for each in logged(package)), 15, "log lines")
    rows = rows_of(page, heading)
    hold(
        (f"{name_of(path)}: {text}" for path, text in found if not any(begins(text, row) for row in rows)),
        f"add the line's first words to docs/{page}, {heading}, with the remedy",
    )
