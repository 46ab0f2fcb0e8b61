"""The script that sets three hosts up runs as root beside a directory that belongs to the servers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import attrs
import pytest

from tests.support.rules import ROOT

SCRIPT = ROOT / "deploy/clusters/3m-automatic/set-up.sh"
ETCDCTL = """#!/bin/sh
case "$*" in *"user add "*) cat > "$LOG/$4" ;; esac
"""


@attrs.frozen
class Host:
    """A directory in place of /etc, and an etcdctl that keeps the passwords of accounts in `log`."""

    etc: Path
    log: Path
    programs: Path

    def set_up(self) -> subprocess.CompletedProcess[str]:
        text = SCRIPT.read_text().replace("/etc/rocketpy", f"{self.etc}/rocketpy")
        environment = os.environ | {"PATH": f"{self.programs}:{os.environ['PATH']}", "LOG": str(self.log)}
        return subprocess.run(
            ["sh", "-c", text], env=environment, capture_output=True, text=True, timeout=60, check=False
        )


@pytest.fixture
def host(tmp_path: Path) -> Host:
    found = Host(tmp_path / "etc", tmp_path / "log", tmp_path / "bin")
    for directory in (found.etc / "rocketpy", found.log, found.programs):
        directory.mkdir(parents=True)
    (found.programs / "etcdctl").write_text(ETCDCTL)
    (found.programs / "etcdctl").chmod(0o755)
    return found


def test_the_password_of_root_lies_in_a_directory_of_root(host: Host) -> None:
    """Fault: The servers could choose the password of etcd's root before the set-up."""
    (host.etc / "rocketpy/etcd-root-password").write_text("known to the servers")
    done = host.set_up()
    assert done.returncode == 0, done.stderr
    directory = host.etc / "rocketpy-root"
    password = (directory / "etcd-root-password").read_text()
    assert password == (host.log / "root").read_text() != "known to the servers" and len(password) > 30
    assert (host.log / "broker").read_text() == (host.etc / "rocketpy/etcd-password").read_text() != password
    modes = [path.stat().st_mode & 0o777 for path in (directory, directory / "etcd-root-password")]
    assert modes == [0o700, 0o600]
    assert host.set_up().returncode == 0 and (directory / "etcd-root-password").read_text() == password


@pytest.mark.parametrize("name", ["ha-secret", "etcd-password"])
def test_a_link_in_the_directory_of_the_servers_is_refused(host: Host, name: str) -> None:
    """Fault: The set-up wrote a secret through a link of the servers, to any file."""
    target = host.etc / "shadow"
    (host.etc / "rocketpy" / name).symlink_to(target)
    done = host.set_up()
    assert done.returncode == 1 and f"rocketpy/{name} is a link, or of another user: remove it" in done.stderr
    assert not target.exists() and not list(host.log.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_file_of_another_user_is_refused(host: Host) -> None:
    path = host.etc / "rocketpy/etcd-password"
    path.write_text("known to the servers")
    os.chown(path, 10911, 10911)
    assert "is a link, or of another user" in host.set_up().stderr and not list(host.log.iterdir())
