"""A systemd of the test's own, in namespaces: units run as on a machine that boots.

It has its own processes, network (loopback alone), users, /run, /tmp, /opt, /var/lib and /etc/systemd/system, and
starts nothing but what the test starts; root is needed. The boot of a whole machine would empty /tmp, among others.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from .waiting import wait_until

COMMAND_S = 120.0  # no command of a test takes as long

# $1: a directory that becomes /opt/rocketpy, $2: one that becomes /etc/rocketpy, $3: the directory of the test
BOOT = """
set -e
ip link set lo up
cp /etc/passwd /etc/group "$3"
grep -q ^rocketpy: "$3/passwd" || echo 'rocketpy:x:987:987::/nonexistent:/usr/sbin/nologin' >> "$3/passwd"
grep -q ^rocketpy: "$3/group" || echo 'rocketpy:x:987:' >> "$3/group"
mount --bind "$3/passwd" /etc/passwd
mount --bind "$3/group" /etc/group
for place in /run /etc/systemd/system /opt /var/lib; do mount -t tmpfs tmpfs $place; done
mkdir -p /opt/rocketpy /etc/rocketpy /run/lock
mount --bind "$1" /opt/rocketpy
mount --bind "$2" /etc/rocketpy
chown -R rocketpy /etc/rocketpy
printf '[Unit]\\nDescription=nothing\\nDefaultDependencies=no\\nAllowIsolate=yes\\n' > /etc/systemd/system/only.target
for unit in "$3"/units/*; do
    name=/etc/systemd/system/$(basename "$unit")
    cp "$unit" "$name"
    mkdir "$name.d"
    printf '[Unit]\\nDefaultDependencies=no\\n' > "$name.d/alone.conf"
done
for place in /tmp /var/tmp; do mount -t tmpfs tmpfs $place; done
cd /
export container=test
exec /lib/systemd/systemd --system --unit=only.target --log-target=console --show-status=no
"""

# $1: a directory with a whole system, which becomes the root
BOOT_ROOT = """
set -e
ip link set lo up
mount --bind "$1" "$1"
cd "$1"
for place in run tmp; do mount -t tmpfs tmpfs $place; done
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount --rbind /dev dev
pivot_root . .
umount -l .
cd /
printf '[Unit]\\nDescription=nothing\\nDefaultDependencies=no\\nAllowIsolate=yes\\n' > /etc/systemd/system/only.target
export container=test
exec chroot . /lib/systemd/systemd --system --unit=only.target --log-target=console --show-status=no
"""


@attrs.frozen
class OwnSystemd:
    """A running one, process 1 of its namespace."""

    pid: int  # outside of it

    def run(self, *command: object) -> subprocess.CompletedProcess[str]:
        """Run a command inside."""
        words = [*self._inside(), *map(str, command)]
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=COMMAND_S)

    def begin(self, *command: object, log: Path) -> subprocess.Popen[str]:
        """Start a command inside whose output is the file `log`. Its standard input tells it when to end."""
        words = [*self._inside(), *map(str, command)]
        with log.open("w") as output:
            return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, text=True)

    def call(self, command: Sequence[str], *, timeout_s: float, has_network: bool) -> int:
        """Run a command inside that shows its output here. `has_network`: that of this machine, not its own."""
        words = [word for word in self._inside() if not (has_network and word == "-n")]
        return subprocess.run([*words, *command], stdin=subprocess.DEVNULL, check=False, timeout=timeout_s).returncode

    def _inside(self) -> list[str]:
        return ["nsenter", "-t", str(self.pid), "-p", "-m", "-n", "-i", "-u", "-C"]

    def start(self, unit: str) -> None:
        """`systemctl start`: returns when the unit has said that it is ready."""
        done = self.run("systemctl", "start", unit)
        assert done.returncode == 0, done.stderr + self.run("systemctl", "status", "--no-pager", "-n50", unit).stdout

    def show(self, unit: str, name: str) -> str:
        return self.run("systemctl", "show", "--value", "-p", name, unit).stdout.strip()


@contextmanager
def own_systemd(rocketpy: Path, configuration: Path, directory: Path) -> Iterator[OwnSystemd]:
    """Boot it on this machine; `directory` has the units in `units/` and gets its log. All of its processes end with
    the block."""
    with booted(BOOT, [str(rocketpy), str(configuration), str(directory)], directory / "systemd.log") as own:
        yield own


@contextmanager
def systemd_of(root: Path, log: Path) -> Iterator[OwnSystemd]:
    """Boot the system in the directory `root`. All of its processes end with the block."""
    with booted(BOOT_ROOT, [str(root)], log) as own:
        yield own


@contextmanager
def booted(script: str, arguments: Sequence[str], log: Path) -> Iterator[OwnSystemd]:
    """Run a script in namespaces of its own, which becomes a systemd and reaches `only.target`."""
    words = ["unshare", "--fork", "--pid", "--mount", "--uts", "--ipc", "--net", "--cgroup", "--mount-proc"]
    words += ["--kill-child", "sh", "-c", script, "sh", *arguments]
    with log.open("w") as output:
        outer = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT)
    children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
    try:
        wait_until(lambda: outer.poll() is not None or children.read_text() != "", "the first process")
        assert outer.poll() is None, log.read_text()
        own = OwnSystemd(int(children.read_text().split()[0]))
        wait_until(
            lambda: outer.poll() is not None or own.show("only.target", "ActiveState") == "active",
            "the boot of systemd",
        )
        assert outer.poll() is None, log.read_text()
        yield own
    finally:
        outer.kill()  # --kill-child: process 1 ends with it, and with it all others
        outer.wait()
