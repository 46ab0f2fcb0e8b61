"""`python -m tests.support.surviving_mutants MODULE ...`: list small mutants of a module that its tests do not find.

Each module is mutated in a copy of the tree (`tests/support/mutants.py` says how). The tests that run the changed line
run in a forked process, the quickest first, until one fails. A mutant that none of them finds is printed with its line:
a test is missing, or code can go, or the change has no effect. So is one that makes them hang. A reader decides which.

    python -m tests.support.surviving_mutants rocketpy/failover/rules/in_sync.py
    python -m tests.support.surviving_mutants rocketpy/broker/delays/schedule.py --tests tests/unit/broker/delays

The tests of a module are by default the files in `tests/unit` that import it or bear its name. The extension module
must be built. Processes that a test starts have the mutant as well, but only lines that run in the process of the test
select it.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import pickle
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import attrs
import pytest

from tests.support.mutants import Mutant, mutants_of

ROOT = Path(__file__).parents[2]
LEFT_OUT = (
    ".git",
    ".venv",
    "build",
    "dist",
    "__pycache__",
    ".hypothesis",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
)
LOADED_FIRST = ("attrs", "cffi", "hypothesis", "trio", "trio.testing", "xml.etree.ElementTree")  # none imports rocketpy
OPTIONS = ("-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")  # hypothesis is loaded
LEAST_LIMIT_S = 20.0
LIMIT_FACTOR = 6.0
FOUND, SURVIVED, TIMED_OUT, NEVER_RUN = "found", "survived", "timed out", "never run"


class Lines:
    """A pytest plugin that notes which tests run which lines of one file, and for how long each test runs."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._test = ""
        self.tests_of: dict[int, set[str]] = {}
        self.seconds: dict[str, float] = {}

    def trace(self, frame: FrameType, _event: str, _arg: object) -> Any:
        if frame.f_code.co_filename != self._path:
            return None
        self.tests_of.setdefault(frame.f_lineno, set()).add(self._test)
        return self.trace

    def begin(self) -> None:
        """Note lines from now on: before pytest imports the module, which a conftest may do."""
        sys.settrace(self.trace)
        threading.settrace(self.trace)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._test, begun_s = item.nodeid, time.monotonic()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = time.monotonic() - begun_s
            self._test = ""


class FirstExample:
    """A pytest plugin that ends a random test at the first example that fails: no smaller one is looked for."""

    def pytest_sessionstart(self) -> None:
        hypothesis = importlib.import_module("hypothesis")
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile("mutations", phases=phases, deadline=None, database=None)
        hypothesis.settings.load_profile("mutations")


@attrs.frozen(eq=False)  # pytest hashes its plugins
class Chosen:
    """A pytest plugin that keeps some tests and orders them: tests that found a mutant before, then the quickest."""

    seconds: dict[str, float]
    finds: Counter[str]
    failed: Path

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        kept = [item for item in items if item.nodeid in self.seconds]
        items[:] = sorted(kept, key=lambda item: (-self.finds[item.nodeid], self.seconds[item.nodeid]))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.write_text(report.nodeid, encoding="utf-8")


@attrs.frozen
class Baseline:
    """The tests of a module as they run without a mutant."""

    tests_of: dict[int, set[str]]
    seconds: dict[str, float]

    def tests_for(self, mutant: Mutant) -> dict[str, float]:
        """Return the tests that run the mutant's lines; all of them if an import runs these lines."""
        lines = range(mutant.line, mutant.last_line + 1)
        tests = set().union(*(self.tests_of.get(line, ()) for line in lines))
        return self.seconds if "" in tests else {test: self.seconds[test] for test in tests}


def run_pytest(copy: Path, arguments: list[str], plugins: list[object], output: Path) -> int:
    """Run pytest in the copy with its own modules; meant for a forked process that ends afterwards."""
    with output.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    own = [name for name in sys.modules if name.split(".")[0] in ("rocketpy", "tests", "bench")]
    for name in own:
        del sys.modules[name]
    sys.path[:] = [str(copy), *(entry for entry in sys.path if Path(entry or ".").resolve() not in (ROOT, copy))]
    importlib.invalidate_caches()
    return int(pytest.main([*OPTIONS, f"--basetemp={copy / 'tmp'}", *arguments], [FirstExample(), *plugins]))


def in_child(limit_s: float, act: Any) -> int | None:
    """Return the result of `act` in a forked process and session, or None if it had to be killed."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            os.setsid()
            status = act()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    ends_s = time.monotonic() + limit_s
    try:
        while time.monotonic() < ends_s:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return None
    finally:
        kill_group(child)  # processes that a test left behind


def kill_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def copy_tree(target: Path) -> Path:
    ignored = shutil.ignore_patterns(*LEFT_OUT, "*.pyc", "target")
    shutil.copytree(ROOT, target, ignore=ignored, symlinks=True, ignore_dangling_symlinks=True)
    return target


def measure(copy: Path, module: str, tests: list[str]) -> Baseline:
    """Run the tests without a mutant and note the lines of each; stop if one fails."""
    noted = copy / "lines"

    def act() -> int:
        lines = Lines(copy / module)
        lines.begin()
        status = run_pytest(copy, tests, [lines], copy / "output")
        sys.settrace(None)
        noted.write_bytes(pickle.dumps((lines.tests_of, lines.seconds)))
        return status

    if in_child(3600.0, act) != 0:
        raise SystemExit(f"{module}: its tests fail without a mutant:\n{(copy / 'output').read_text()[-3000:]}")
    return Baseline(*pickle.loads(noted.read_bytes()))


def try_mutant(copy: Path, module: str, source: str, mutant: Mutant, baseline: Baseline, finds: Counter[str]) -> str:
    """Run the tests of one mutant; the test that finds it is counted in `finds`."""
    chosen = baseline.tests_for(mutant)
    if not chosen:
        return NEVER_RUN
    (copy / module).write_text(mutant.apply(source), encoding="utf-8")
    files, failed = sorted({test.split("::")[0] for test in chosen}), copy / "failed"
    failed.unlink(missing_ok=True)
    plugin = Chosen(chosen, finds, failed)
    limit_s = LEAST_LIMIT_S + LIMIT_FACTOR * sum(chosen.values())
    try:
        status = in_child(limit_s, lambda: run_pytest(copy, ["-x", *files], [plugin], copy / "output"))
    finally:
        (copy / module).write_text(source, encoding="utf-8")
        shutil.rmtree(copy / "tmp", ignore_errors=True)
    if failed.exists():
        finds[failed.read_text(encoding="utf-8")] += 1
    return outcome_of(status, failed.exists())


def outcome_of(status: int | None, has_failed: bool) -> str:
    """Say what a run of pytest with a mutant means. `status`: None if it had to be killed.

    Raises:
        RuntimeError: it says nothing of the mutant: no test was collected, or pytest itself failed.
    """
    if status is None:
        return TIMED_OUT
    if status == 0:
        return SURVIVED
    is_import_error = status == 2
    is_crash = status in (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS)
    if is_import_error or is_crash or (status == 1 and has_failed):
        return FOUND
    raise RuntimeError(f"pytest ended with status {status} and no failed test")


def own_tests(module: str) -> list[str]:
    """Return the test files that import the module, or that bear its name."""
    *package, name = Path(module).with_suffix("").parts
    dotted = ".".join(package)
    imported = re.compile(rf"\b{dotted}\.{name}\b|\bfrom {dotted} import [^\n]*\b{name}\b")
    files = sorted((ROOT / "tests/unit").rglob("test_*.py"))
    found = [file for file in files if file.stem == f"test_{name}" or imported.search(file.read_text(encoding="utf-8"))]
    if not found:
        raise SystemExit(f"{module}: no test file imports it or bears its name; name some with --tests")
    return [str(file.relative_to(ROOT)) for file in found]


def chosen_mutants(source: str, lines: range, only: int, *, drops: bool) -> list[Mutant]:
    """Return the mutants in `lines`; at most `only` of them, from all parts of the source."""
    mutants = [one for one in mutants_of(source) if one.line in lines and (one.is_drop or not drops)]
    return mutants[:: max(1, -(-len(mutants) // only))]


def try_all(module: str, source: str, mutants: list[Mutant], tests: list[str], processes: int, out: TextIO) -> int:
    """Print every mutant that no test fails with; return the number of those that the tests do not find."""
    begun_s, numbers = time.monotonic(), {FOUND: 0, SURVIVED: 0, TIMED_OUT: 0, NEVER_RUN: 0}
    with tempfile.TemporaryDirectory(prefix="rp-", ignore_cleanup_errors=True) as directory:
        copies: multiprocessing.Queue[Path] = multiprocessing.Queue()
        for number in range(processes):
            copies.put(copy_tree(Path(directory) / str(number)))
        baseline = measure(Path(directory) / "0", module, tests)
        with multiprocessing.Pool(processes, _begin, (copies, module, source, baseline)) as pool:
            for mutant, outcome in zip(mutants, pool.imap(_try_in_own_copy, mutants), strict=True):
                numbers[outcome] += 1
                if outcome != FOUND:
                    print(f"{module}:{mutant.line}: {outcome}: {mutant.shown(source)}", file=out, flush=True)
    counted = ", ".join(f"{number} {outcome}" for outcome, number in numbers.items())
    print(f"{module}: {len(mutants)} mutants: {counted}; {time.monotonic() - begun_s:.0f} s", file=out, flush=True)
    return numbers[SURVIVED] + numbers[NEVER_RUN]


_own: list[Any] = []


def _begin(copies: multiprocessing.Queue[Path], *given: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _own[:] = [copies.get(), *given, Counter()]


def _try_in_own_copy(mutant: Mutant) -> str:
    copy, module, source, baseline, finds = _own
    return try_mutant(copy, module, source, mutant, baseline, finds)


def _lines(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.surviving_mutants", description=__doc__.splitlines()[0]
    )
    parser.add_argument("modules", nargs="+", metavar="MODULE", help="a file of rocketpy/")
    parser.add_argument(
        "--tests", nargs="+", default=[], metavar="PATH", help="instead of the tests that import the module"
    )
    parser.add_argument("--lines", type=_lines, default=range(10**6), metavar="A-B", help="mutate these lines only")
    parser.add_argument("--only", type=int, default=10**6, metavar="N", help="at most N mutants of each module")
    parser.add_argument("--drops", action="store_true", help="only drop statements and fix conditions: a third of all")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the pool and the copies go as well
    for name in LOADED_FIRST:
        importlib.import_module(name)
    survivors = 0
    for module in given.modules:
        source = (ROOT / module).read_text(encoding="utf-8")
        mutants = chosen_mutants(source, given.lines, given.only, drops=given.drops)
        survivors += try_all(module, source, mutants, given.tests or own_tests(module), given.processes, sys.stdout)
    return 1 if survivors else 0


if __name__ == "__main__":
    raise SystemExit(main())
