"""`python -m bench.targets`: how many seconds do the targets of the Makefile take?

Runs each target several times and enters its seconds into bench/results/targets.json, then writes the table of
CONTRIBUTING.md from the newest five runs of each; without a target it only writes the table. `--beside` keeps two more
processes busy meanwhile. Target `ci` is .ci/run, and also gives the seconds of each target that it calls; `build` has
no cache of pip. These two begin in a clone of the commit; the others begin in this tree, with the caches of the run
before.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results" / "targets.json"
PAGE = ROOT / "CONTRIBUTING.md"
LOGS = ROOT / "build" / "targets"  # the output of the last run of each
BEGIN, END = "<!-- seconds of targets: python -m bench.targets -->\n", "<!-- end -->\n"
BUILD, CI = "build", "ci"  # these begin in a clone
PARTS = "seconds of each target:"  # the last line of .ci/run
SPIN = "while True: pass"
NEWEST_RUNS = 5
BUSY = 2  # processes that are kept busy, with --beside


def title_of(target: str) -> str:
    """Return `make TARGET`; `.ci/run`, and `.ci/run: TARGET` for a target that it calls."""
    return f"make {target}" if not target.startswith(CI) else f".ci/run{target.removeprefix(CI)}"


class TargetError(click.ClickException):
    """A target failed; the message names the file with its output.

    Attributes:
        passed: seconds of the targets of .ci/run that had passed before.
    """

    def __init__(self, message: str, passed: dict[str, float]) -> None:
        super().__init__(message)
        self.passed = passed


def run_seconds(target: str, only: Sequence[str] = ()) -> dict[str, float]:
    """Run a target once, and return its seconds and those of each target that .ci/run calls.

    Args:
        only: targets that .ci/run is to call; then the result has these alone.

    Raises:
        TargetError: the target failed.
    """
    with ExitStack() as stack:
        place, environ = ROOT, dict(os.environ)
        if target in (BUILD, CI):
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rocketpy-clone-")))
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(place)], check=True)
        if target == BUILD:
            environ["PIP_CACHE_DIR"] = str(place / "pip-cache")
        begun_s = time.monotonic()
        words = ["bash", ".ci/run", *only] if target == CI else ["make", target]
        path = LOGS / f"{target}.log"
        LOGS.mkdir(parents=True, exist_ok=True)
        with path.open("w") as log:
            status = subprocess.run(words, cwd=place, env=environ, stdout=log, stderr=log, check=False).returncode
        parts = parts_of_ci(path.read_text()) if target == CI else {}
        if status:
            failed = set(re.findall(r"^failed: (\S+)$", path.read_text(), re.MULTILINE))
            passed = {name: spent for name, spent in parts.items() if name.removeprefix(f"{CI}: ") not in failed}
            raise TargetError(f"{title_of(target)} failed with status {status}; its output is in {path}", passed)
        return parts if only else parts | {target: round(time.monotonic() - begun_s, 1)}


def parts_of_ci(output: str) -> dict[str, float]:
    """Return the seconds of each target, from the line that .ci/run prints at its end."""
    words = output.rpartition(PARTS)[2].partition("\n")[0].split()
    return {f"{CI}: {target}": float(seconds) for target, seconds in zip(words[::2], words[1::2], strict=True)}


@contextmanager
def busy(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Keep `count` processes busy."""
    spinning = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(count)]
    try:
        yield spinning
    finally:
        for one in spinning:
            one.kill()
            one.wait()


def read_results() -> list[dict[str, object]]:
    results: list[dict[str, object]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    return results


def shown(rows: Sequence[dict[str, object]]) -> str:
    """Show `median (lowest to highest, runs)` of the newest runs, or a dash."""
    seconds = [float(str(row["seconds"])) for row in rows[-NEWEST_RUNS:]]
    if not seconds:
        return "-"
    if len(seconds) == 1:
        return digits(seconds[0])
    return (
        f"{digits(statistics.median(seconds))} ({digits(min(seconds))} to {digits(max(seconds))}, {len(seconds)} runs)"
    )


def digits(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}"


def table(results: Sequence[dict[str, object]]) -> str:
    """Return the table of CONTRIBUTING.md: the seconds of each target, alone and beside a load."""
    lines = ["| target | seconds | beside two busy processes |", "|---|---|---|"]
    for target in dict.fromkeys(str(row["target"]) for row in results):
        alone = [row for row in results if row["target"] == target and not row["beside"]]
        beside = [row for row in results if row["target"] == target and row["beside"]]
        lines.append(f"| `{title_of(target)}` | {shown(alone)} | {shown(beside)} |")
    return "\n".join(lines) + "\n"


def write_page(results: Sequence[dict[str, object]]) -> None:
    """Replace the table between its two marks."""
    text = PAGE.read_text()
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: BEGIN + "\n" + table(results) + "\n" + END, text))


@click.command(help=__doc__)
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option("--runs", default=1, show_default=True, help="Runs of each target.")
@click.option("--beside", is_flag=True, help="Keep two more processes busy meanwhile.")
@click.option("--only", multiple=True, metavar="TARGET", help="With `ci`: run only these, as after a failure.")
def main(targets: tuple[str, ...], runs: int, beside: bool, only: tuple[str, ...]) -> None:
    console, results = Console(stderr=True), read_results()
    head = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(head, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    common: dict[str, object] = {"beside": BUSY if beside else 0, "commit": commit, "processors": os.cpu_count()}

    def enter(seconds: dict[str, float]) -> None:
        day = datetime.now(UTC).date().isoformat()
        results.extend({"target": name, "seconds": value, "day": day} | common for name, value in seconds.items())
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        write_page(results)

    for target in targets:
        for number in range(1, runs + 1):
            try:
                with busy(BUSY if beside else 0):
                    seconds = run_seconds(target, only)
            except TargetError as error:
                enter(error.passed)
                raise
            enter(seconds)
            console.print(
                f"{title_of(target)}: run {number} of {runs}, {seconds.get(target, sum(seconds.values())):.0f} s"
            )
    write_page(results)


if __name__ == "__main__":
    main()
