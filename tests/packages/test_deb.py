"""Debian's package (`make deb`): lintian takes it, and in a Debian with a real systemd it is installed, serves, is
installed anew, removed and purged."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.own_systemd import OwnSystemd, systemd_of
from tests.support.rules import ROOT
from tests.support.waiting import wait_until

ARCHIVE = ROOT / "build/debian/root.tar"  # kept for the next run
SERVICES = ("rocketpy-namesrv.service", "rocketpy-broker.service")
BROKER = SERVICES[1]
CONFIGURATION = "/etc/rocketpy/broker.conf"
CHANGE = r"\n# a change of the operator\nfileReservedTime = 71\n"
SEND = """
from rocketpy.client import Message, ProducerOptions
from rocketpy.client.sync import Producer
with Producer("deb", ProducerOptions(name_servers="127.0.0.1:9876")) as producer:
    print(producer.send(Message("Parcels", b"by the package")).status.name)
"""

# The project has no mail address, and the wheel of PyYAML has libyaml in it.
TAGS = "bogus-mail-host,bogus-mail-host-in-debian-changelog,embedded-library"

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("mmdebstrap", "lintian", "unshare"))),
    reason="needs root, mmdebstrap, lintian and unshare",
)


@pytest.fixture(scope="module")
def package() -> Path:
    (package,) = (ROOT / "dist").glob("rocketpy_*.deb")
    return package


@pytest.fixture
def debian(package: Path, tmp_path: Path) -> Iterator[OwnSystemd]:
    """A running Debian with Python and systemd, and the package in /root."""
    if not ARCHIVE.exists():
        ARCHIVE.parent.mkdir(exist_ok=True)
        made = ARCHIVE.with_suffix(".new")
        options = ["--variant=minbase", "--include=python3,systemd-sysv", '--aptopt=Acquire::Check-Valid-Until "false"']
        subprocess.run(["mmdebstrap", *options, "--format=tar", "bookworm", str(made)], check=True, capture_output=True)
        made.rename(ARCHIVE)
    root = tmp_path / "root"
    root.mkdir()
    subprocess.run(["tar", "-C", str(root), "-xf", str(ARCHIVE)], check=True)
    for unit in SERVICES:  # it boots into an empty target, which has none of their default dependencies
        directory = root / f"etc/systemd/system/{unit}.d"
        directory.mkdir()
        (directory / "alone.conf").write_text("[Unit]\nDefaultDependencies=no\n")
    shutil.copy(package, root / "root/rocketpy.deb")
    with systemd_of(root, tmp_path / "systemd.log") as own:
        yield own


def dpkg(debian: OwnSystemd, *words: str) -> str:
    done = debian.run("env", "DEBIAN_FRONTEND=noninteractive", "dpkg", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def output(debian: OwnSystemd, *words: str) -> str:
    done = debian.run(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def exists(debian: OwnSystemd, *paths: str) -> list[bool]:
    return [debian.run("test", "-e", path).returncode == 0 for path in paths]


def states(debian: OwnSystemd) -> list[str]:
    return [debian.show(unit, "ActiveState") for unit in SERVICES]


def test_lintian_finds_no_error(package: Path) -> None:
    words = ["lintian", "--suppress-tags", TAGS, str(package)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if line.startswith("E:")]
    assert (done.returncode, errors) == (0, []), done.stdout + done.stderr


def test_the_life_of_the_package(debian: OwnSystemd) -> None:
    # installed: both servers serve this machine, as a user of their own, also after the next boot
    dpkg(debian, "--install", "/root/rocketpy.deb")
    assert states(debian) == ["active", "active"]
    assert [output(debian, "systemctl", "is-enabled", unit) for unit in SERVICES] == ["enabled", "enabled"]
    assert output(debian, "/usr/lib/rocketpy/bin/python", "-c", SEND) == "SEND_OK"
    assert output(debian, "stat", "-c", "%U", f"/proc/{debian.show(BROKER, 'MainPID')}") == "rocketpy"
    assert output(debian, "rocketpy", "doctor", "--live").count("answers in") == 2
    assert output(debian, "stat", "-c", "%U %a", CONFIGURATION) == "rocketpy 644"
    assert output(debian, "stat", "-c", "%U", str(Path(CONFIGURATION).parent)) == "rocketpy"
    assert [path for path in output(debian, "dpkg", "-L", "rocketpy").split() if path.startswith("/etc")] == []
    assert debian.run("systemd-analyze", "verify", BROKER).returncode == 0

    # the broker may change its configuration: the directory is its own
    change = ("updateBrokerConfig", "-c", "DefaultCluster", "-k", "filterSupportRetry", "-v", "true")
    output(debian, "mqadmin", *change, "-n", "127.0.0.1:9876")
    assert output(debian, "grep", "filterSupportRetry", CONFIGURATION).replace(" ", "") == "filterSupportRetry=true"

    # installed anew, as at an upgrade: changed configuration stays, servers restart, messages are there
    debian.run("sh", "-c", f"printf '{CHANGE}' >> {CONFIGURATION}")
    output(debian, "chown", "root", str(Path(CONFIGURATION).parent))
    before = debian.show(BROKER, "MainPID")
    dpkg(debian, "--install", "/root/rocketpy.deb")
    assert "a change of the operator" in output(debian, "cat", CONFIGURATION)
    wait_until(lambda: states(debian) == ["active", "active"], "the restart")
    assert debian.show(BROKER, "MainPID") != before
    assert output(debian, "stat", "-c", "%U", str(Path(CONFIGURATION).parent)) == "root", "as the operator likes it"
    output(debian, "chown", "rocketpy", str(Path(CONFIGURATION).parent))

    # removed: nothing runs, programs are gone, configuration and messages stay
    linked = "/etc/rocketpy/namesrv.conf"
    output(debian, "runuser", "-u", "rocketpy", "--", "ln", "-sf", "/root/rocketpy.deb", linked)
    dpkg(debian, "--remove", "rocketpy")
    assert [state for state in states(debian) if state == "active"] == []
    assert exists(debian, "/usr/lib/rocketpy", "/usr/bin/mqadmin", "/usr/lib/systemd/system/" + BROKER) == [False] * 3
    assert exists(debian, CONFIGURATION, "/var/lib/rocketpy/store/commitlog", linked) == [True] * 3

    # purged: nothing is left but the user, and what a link of a broker's named
    dpkg(debian, "--purge", "rocketpy")
    left = output(
        debian, "find", "/etc", "/lib", "/usr", "/var", "-xdev", "-name", "*rocketpy*", "-not", "-name", "*.service.d"
    )
    assert left == "" and exists(debian, "/root/rocketpy.deb") == [True]


def test_an_administrator_who_forbids_starts(debian: OwnSystemd) -> None:
    """As policy-rc.d does in images and at first installations."""
    debian.run("sh", "-c", "printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d; chmod +x /usr/sbin/policy-rc.d")
    dpkg(debian, "--install", "/root/rocketpy.deb")
    assert states(debian) == ["inactive", "inactive"]
