"""Follows pages literally on a fresh machine: `python -m tests.support.follow_page docs/run/install.md` (root, Linux).

The machine is a new Debian 13 (ROCKETPY_SUITE=bookworm: 12) as its installer leaves a server, with a systemd and a
network of its own; of this machine it has the way to packages. build/fresh keeps the system, and each machine is an
overlay of it. A copy of the checkout is the working directory. Each page is one session of bash, which ends at the
first command that fails.
A comment before a block says what is different about it:

    <!-- follow: network -->         it installs packages: it runs with the network of this machine
    <!-- follow: any status -->      its commands may fail, as the text says
    <!-- follow: not run: REASON --> this machine cannot run it
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs

from .image import OLD_LISTS, run
from .own_systemd import OwnSystemd, booted
from .rules import ROOT

BLOCK = re.compile(r"(?:^<!-- follow: (.+?) -->\n+)?^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
NETWORK, ANY_STATUS, NOT_RUN = "network", "any status", "not run: "
CHECKOUT = "/root/rocketpy"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PAGE_S = 1800.0
# What the installer adds to packages of the priority "important" where a server is asked for, and git for the checkout.
PACKAGES = "bash-completion,ca-certificates,git,libpam-systemd,netcat-openbsd,openssh-client,systemd-sysv"
SUITE = os.environ.get("ROCKETPY_SUITE", "trixie")
SYSTEM = ROOT / f"build/fresh/{SUITE}-{zlib.crc32(PACKAGES.encode()):08x}"
# Of this machine: how packages are reached, if it is not as everywhere.
WAY = ("/etc/resolv.conf", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt", "/etc/apt/apt.conf.d/99*")

# $1: an empty directory on a disk that overlays can use, $2: the checkout, $3: the system, the rest: files of WAY
BOOT = """
set -e
ip link set lo up
ip address add 203.0.113.7/32 dev lo
mkdir "$1/upper" "$1/work" "$1/root"
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$3,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
for place in root run tmp var/tmp opt; do mount -t tmpfs tmpfs $place; done
for file in $4; do [ ! -e "$file" ] || cp --dereference "$file" ".$file"; done
echo '203.0.113.7 broker.example.org' >> etc/hosts
git -c safe.directory='*' clone --quiet "$2" root/rocketpy
mkdir -p run/lock old
mount --rbind /sys sys
mount --rbind /dev dev
mount -t proc proc proc
for kind in service socket; do
    mkdir -p etc/systemd/system/$kind.d
    printf '[Unit]\\nDefaultDependencies=no\\n' > etc/systemd/system/$kind.d/alone.conf
done
mkdir -p etc/systemd/system.conf.d  # the sections of a page restart a service more often in 10 s than people do
printf '[Manager]\\nDefaultStartLimitIntervalSec=0\\n' > etc/systemd/system.conf.d/starts.conf
printf '[Unit]\\nDescription=nothing\\nDefaultDependencies=no\\nAllowIsolate=yes\\n' > etc/systemd/system/only.target
pivot_root . old
umount -l /old
export container=test
exec /lib/systemd/systemd --system --unit=only.target --log-target=console --show-status=no
"""


@attrs.frozen
class Block:
    """Commands of a page."""

    line: int
    mark: str
    commands: str


def blocks_of(text: str) -> list[Block]:
    """List the sh blocks of a page. Raises: ValueError: a mark that is none."""
    found = []
    for match in BLOCK.finditer(text):
        mark = match[1] or ""
        if mark not in ("", NETWORK, ANY_STATUS) and not mark.startswith(NOT_RUN):
            raise ValueError(f"`<!-- follow: {mark} -->` is no mark; see tests/support/follow_page.py")
        found.append(Block(text.count("\n", 0, match.start(2)) + 1, mark, match[2]))
    return found


def sessions_of(blocks: list[Block]) -> Iterator[tuple[bool, str]]:
    """Yield (with the network of this machine, script) for runs of blocks that share a shell."""
    script = ""
    for block in blocks:
        if block.mark.startswith(NOT_RUN):
            script += f"echo '--- line {block.line}: {block.mark}'\n"
            continue
        commands = f"echo '--- line {block.line}'\n{block.commands}"
        if block.mark == NETWORK:
            yield from [(False, script)] if script else []
            yield True, commands
            script = ""
        else:
            script += f"set +e\n{commands}set -e\n" if block.mark == ANY_STATUS else commands
    if script:
        yield False, script


def made_system() -> Path:
    """Return the root directory of the system; make it if it is not there."""
    if not SYSTEM.exists():
        new = SYSTEM.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        run("mmdebstrap", "--variant=important", f"--include={PACKAGES}", OLD_LISTS, SUITE, new)
        new.rename(SYSTEM)
    return SYSTEM


@contextmanager
def fresh_machine() -> Iterator[OwnSystemd]:
    """Boot a machine; all of it is gone after the block."""
    system = made_system()
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="rocketpy-fresh-"))
        arguments = [name, str(ROOT), str(system), " ".join(WAY)]
        own = stack.enter_context(booted(BOOT, arguments, Path(name) / "systemd.log"))
        own.run("systemctl", "start", "systemd-journald.socket", "systemd-journald.service")
        yield own


def follow(own: OwnSystemd, page: Path) -> int:
    """Run the commands of a page. Returns: the status of the first that failed, or 0."""
    for has_network, script in sessions_of(blocks_of(page.read_text(encoding="utf-8"))):
        words = ["env", "-i", f"PATH={PATH}", "HOME=/root", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"]
        words += ["bash", "-c", f"cd {CHECKOUT}\nset -eo pipefail\nset -v\n{script}"]
        status = own.call(words, timeout_s=PAGE_S, has_network=has_network)
        if status:
            return status
    return 0


def main(pages: list[str]) -> int:
    """Follow the pages one after the other on one machine; the exit status is 1 if a command failed."""
    with fresh_machine() as own:
        for page in pages:
            print(f"=== {page}", flush=True)
            status = follow(own, ROOT / page)
            if status:
                print(f"=== {page}: a command ended with status {status}", flush=True)
                return 1
    print("=== every command of every page worked")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
