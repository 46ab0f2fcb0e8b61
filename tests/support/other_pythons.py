"""Runs tests under the Pythons of newer releases of Debian: `python -m tests.support.other_pythons trixie sid`.

Each release has a root directory in build/pythons, which mmdebstrap makes once. A new clone of the committed state is
built and tested in it, and what `make dist` made here is installed and used (root, network).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from .image import OLD_LISTS
from .rules import ROOT

ROOTS = ROOT / "build/pythons"
PACKAGES = "ca-certificates,gcc,git,iproute2,libc6-dev,make,openssl,procps,python3-dev,python3-venv"
OPTIONS = ("--variant=apt", f"--include={PACKAGES}", OLD_LISTS)
TESTS = ("tests/unit", "tests/property", "tests/system", "tests/packages/test_distributions.py")

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
    .venv/bin/python -m pytest --numprocesses 2 --dist loadfile "$@" || exit
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


def main(suites: list[str]) -> int:
    """Run TESTS in the root of each release. Returns: the exit status: 1: a test failed, 2: a tool is missing."""
    if lacks := missing():
        print(
            f"rocketpy: `make test-pythons` needs {', '.join(lacks)} (Debian: mmdebstrap, util-linux)", file=sys.stderr
        )
        return 2
    variables = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    variables |= {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
    alone = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", RUN, "sh")
    statuses = {
        suite: subprocess.run([*alone, made(suite), ROOT, *TESTS], env=variables).returncode for suite in suites
    }
    print("".join(f"{suite}: {'failed' if status else 'passed'}\n" for suite, status in statuses.items()), end="")
    return int(any(statuses.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
