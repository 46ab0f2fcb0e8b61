"""The scripts of Debian's package, which run as root; `make test-packages` installs the package."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.rules import ROOT

HELPERS = ("py3compile", "py3clean", "systemd-sysusers", "deb-systemd-helper", "deb-systemd-invoke", "systemctl")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of root's; a broker has put links of both kinds to it into /etc/rocketpy, which it may write to."""
    secret, configuration = tmp_path / "shadow", tmp_path / "etc"
    configuration.mkdir()
    secret.write_text("root:*:")
    (configuration / "broker.conf").symlink_to(secret)
    (configuration / "namesrv.conf").hardlink_to(secret)
    return secret


def run(root: Path, script: str, *words: str) -> list[str]:
    """Run a script of the package. Returns: the arguments of each call of chown."""
    programs, log = root / "bin", root / "log"
    programs.mkdir()
    log.touch()
    for name in HELPERS:
        (programs / name).write_text("#!/bin/sh\n")
    (programs / "chown").write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    text = (ROOT / "deploy/debian" / script).read_text().replace("/etc/rocketpy", str(root / "etc"))
    text = text.replace("-user rocketpy", f"-user {os.getuid()}")
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["sh", "-c", text, script, *words], env={"PATH": path}, check=True)
    return log.read_text().splitlines()


def test_an_upgrade_gives_away_no_file_that_a_broker_has_linked_to(secret: Path) -> None:
    """Fault: An upgrade of Debian's package gave user rocketpy any file behind a link that a broker had put into
    /etc/rocketpy."""
    root = secret.parent
    assert run(root, "postinst", "configure", "0.1") == [f"rocketpy:rocketpy {root / 'etc'}"]


def test_a_purge_finds_no_link_that_a_broker_has_made(secret: Path) -> None:
    """Fault: A purge of Debian's package let dpkg delete any file that a broker had linked to in place of its
    configuration."""
    configuration = secret.parent / "etc"
    assert run(secret.parent, "prerm", "upgrade", "0.2") == []
    assert (configuration / "broker.conf").is_symlink()
    (secret.parent / "bin").rename(secret.parent / "before")
    run(secret.parent, "prerm", "remove")
    assert [path.name for path in configuration.iterdir()] == ["namesrv.conf"]
    assert secret.read_text() == "root:*:"
