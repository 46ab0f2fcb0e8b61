"""`python -m tests.support.known_mutants`: put mutants into a copy of the tree in turn; tests must find each.

The mutants are in the tables beside this file. The tests that a mutant names run without it, and have to pass;
then with it, and one has to fail. `--everything` runs all that `make test` runs instead: minutes for each mutant.

    python -m tests.support.known_mutants                   # one mutant in each package that guards data, and one in C
    python -m tests.support.known_mutants --core            # the compiled core: core_*.txt
    python -m tests.support.known_mutants --only schedule   # those whose name has this word
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import attrs

from tests.support.known_mutants.tables import KnownMutant, mutants_of_core, mutants_of_packages
from tests.support.surviving_mutants import copy_tree, kill_group

EVERYTHING = ("tests/unit", "tests/property", "tests/system")
LIMIT_S = 90.0  # for tests with a mutant: longer than any of them waits for a condition, so that it fails by itself
LIMIT_FACTOR = 4.0  # and so much more, by their time without a mutant; a mutant that hangs them is found
UNKNOWN_LIMIT_S = 3600.0
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


class Core:
    """The compiled core of a copy: each C file is compiled once, and again when it has changed."""

    def __init__(self, copy: Path) -> None:
        self._copy = copy
        self._built: dict[Path, int] = {}

    def build(self) -> None:
        """Compile what has changed and link. Raises: CalledProcessError."""
        times = {path: path.stat().st_mtime_ns for path in (self._copy / "csrc").rglob("*.[ch]")}
        if times != self._built:
            command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
            subprocess.run(command, cwd=self._copy, check=True, env=environment(self._copy))
            self._built = times


def environment(copy: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}


def failing_test(copy: Path, tests: Iterable[str], limit_s: float) -> str | None:
    """Run the tests in the copy. Returns the name of the first that fails, or None."""
    options = ["-x", "-q", "-p", "no:cacheprovider", f"--basetemp={copy / 'tmp'}"]
    command = [sys.executable, "-P", "-m", "pytest", *options, *tests]
    with (copy / "output").open("w+") as output:
        process = subprocess.Popen(
            command, cwd=copy, env=environment(copy), stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return "no end in time"
        finally:
            kill_group(process.pid)  # what a crashed test has left
            process.wait()
            shutil.rmtree(copy / "tmp", ignore_errors=True)
        if status == 0:
            return None
        output.seek(0)
        text = output.read()
        found = FAILED.search(text)
        if found is None and status >= 0:
            raise SystemExit(f"pytest ended with status {status} and no failed test:\n{text[-3000:]}")
        return found[1] if found else f"a crash ({signal.Signals(-status).name})"


@attrs.frozen
class Copy:
    """A copy of the tree that has at most one mutant. `core`: only if some mutant is in C."""

    root: Path
    core: Core | None

    def run(self, tests: tuple[str, ...], limit_s: float) -> str | None:
        """Return the first test that fails in the copy as it is, or None."""
        if self.core:
            self.core.build()
        return failing_test(self.root, tests, limit_s)

    def find(self, mutant: KnownMutant, tests: tuple[str, ...], limit_s: float) -> str | None:
        """Return the test that finds the mutant, or None."""
        path = self.root / mutant.path
        source = path.read_text(encoding="utf-8")
        if source.count(mutant.old) != 1:
            raise SystemExit(f"{mutant.name}: {mutant.path} has not just once:\n{mutant.old}")
        path.write_text(source.replace(mutant.old, mutant.new), encoding="utf-8")
        try:
            return self.run(tests, limit_s)
        finally:
            path.write_text(source, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.known_mutants", description=__doc__.splitlines()[0])
    parser.add_argument("--core", action="store_true", help="the mutants in the compiled core")
    parser.add_argument("--only", default="", metavar="WORD", help="mutants whose name has this word")
    parser.add_argument("--everything", action="store_true", help="run all tests of `make test` for each")
    given = parser.parse_args()
    mutants = [one for one in (mutants_of_core() if given.core else mutants_of_packages()) if given.only in one.name]
    missed, limits_s = [], dict[tuple[str, ...], float]()
    with tempfile.TemporaryDirectory(prefix="rp-", ignore_cleanup_errors=True) as directory:
        root = copy_tree(Path(directory) / "0")
        copy = Copy(root, Core(root) if any(mutant.path.startswith("csrc/") for mutant in mutants) else None)
        if copy.core:
            copy.core.build()
        for mutant in mutants:
            tests = EVERYTHING if given.everything else mutant.tests
            begun_s = time.monotonic()
            if tests not in limits_s:
                if (failed := copy.run(tests, UNKNOWN_LIMIT_S)) is not None:
                    raise SystemExit(f"{failed} fails without a mutant:\n{(root / 'output').read_text()[-3000:]}")
                limits_s[tests] = LIMIT_S + LIMIT_FACTOR * (time.monotonic() - begun_s)
                begun_s = time.monotonic()
            found = copy.find(mutant, tests, limits_s[tests])
            outcome = f"found by {found}" if found else "MISSED"
            print(f"{mutant.name}: {outcome}; {time.monotonic() - begun_s:.0f} s", flush=True)
            missed += [] if found else [mutant.name]
    print(f"{len(mutants) - len(missed)} of {len(mutants)} found")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
