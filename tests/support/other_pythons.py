"""Runs tests under the Pythons of newer releases of Debian: `python -m tests.support.other_pythons trixie sid`.

Each release has a root directory in build/pythons, which mmdebstrap makes once. A new clone of the committed state is
built and tested in it, and what `make dist` made here is installed and used (root, network). The output is kept in
build/pythons/RELEASE.log, with a line for each test as soon as it has ended; passed tests are not printed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from .image import OLD_LISTS
from .rules import ROOT

ROOTS = ROOT / "build/pythons"
PACKAGES = "ca-certificates,gcc,git,iproute2,libc6-dev,make,openssl,procps,python3-dev,python3-venv"
OPTIONS = ("--variant=apt", f"--include={PACKAGES}", OLD_LISTS)
TESTS = ("tests/unit", "tests/property", "tests/system", "tests/packages/test_distributions.py")
# Lines of pytest: a test begins, ends well, or fails; a file cannot be read (in the summary alone).
QUIET = re.compile(r"tests/\S+::.* \n|\[gw\d+\] \[ *\d+%\] (?:PASSED|SKIPPED|XFAIL) .*\n")
FAILED = re.compile(r"\[gw\d+\] \[ *\d+%\] (?:FAILED|ERROR) (.+?) *\n|ERROR (tests/[^:\s]+)(?: - .*)?\n")

# $1: the root directory, $2: this tree, the rest: tests. What is mounted goes with the namespace. The shell does not
# exec pytest: it is process 1 of the namespace, and reaps workers whose supervisor a test killed; pytest would not.
RUN = """
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
    [ ! -e $file ] || { touch .$file && mount --bind $file .$file; }
done
rm -rf rocketpy
git -c safe.directory='*' clone --quiet "$2" rocketpy
cp -r "$2/dist" rocketpy
shift 2
exec chroot . sh -e -c '
    cd /rocketpy
    make dev
    .venv/bin/python -VV
    .venv/bin/python -m pytest --verbose --numprocesses 2 --dist loadfile "$@" || exit
' sh "$@"
"""


def missing() -> list[str]:
    """Return what this machine lacks."""
    return [tool for tool in ("mmdebstrap", "unshare") if not shutil.which(tool)] + ["root"] * (os.geteuid() != 0)


def made(suite: str) -> Path:
    """Return the root directory of a release; make it if it is not there."""
    root = ROOTS / suite
    if not root.exists():
        new = ROOTS / f"{suite}.new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        subprocess.run(["mmdebstrap", *OPTIONS, suite, str(new)], check=True)
        new.rename(root)
    return root


def failed_tests(lines: Iterable[str]) -> list[str]:
    """Return the tests that failed, and the files that cannot be read, from output of pytest, complete or not."""
    return sorted({match[1] or match[2] for line in lines if (match := FAILED.fullmatch(line))})


def log_of(suite: str) -> Path:
    return ROOTS / f"{suite}.log"


def tested(suite: str, tests: Sequence[str]) -> int:
    """Run tests in the root of a release, keep their output in its log, and print most of it. Returns: the status."""
    variables = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    variables |= {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
    alone = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", RUN, "sh")
    words = [*alone, made(suite), ROOT, *tests]
    with (
        log_of(suite).open("wb", buffering=0) as log,
        subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as run,
    ):
        assert run.stdout is not None
        for output in run.stdout:
            log.write(output)
            line = output.decode(errors="replace")
            if not QUIET.fullmatch(line):
                print(line, end="", flush=True)
    return run.returncode


def main(words: list[str]) -> int:
    """Run tests in the root of each release, and name those that failed.

    Returns: the exit status: 1: a test failed, 2: a tool is missing.
    """
    parser = argparse.ArgumentParser(prog="other_pythons")
    parser.add_argument("suites", nargs="+", help="releases of Debian")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="instead of all that are named here")
    options = parser.parse_args(words)
    if lacks := missing():
        print(
            f"rocketpy: `make test-pythons` needs {', '.join(lacks)} (Debian: mmdebstrap, util-linux)", file=sys.stderr
        )
        return 2
    statuses = {suite: tested(suite, options.tests) for suite in options.suites}
    for suite, status in statuses.items():
        print(f"{suite}: {'failed' if status else 'passed'}; {log_of(suite)}")
        with log_of(suite).open(errors="replace") as log:
            print("".join(f"    {name}\n" for name in failed_tests(log)), end="")
    return int(any(statuses.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
