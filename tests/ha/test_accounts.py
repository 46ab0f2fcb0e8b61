"""A group whose etcd has accounts, as docs/run/automatic-failover.md sets them up."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.etcd import EtcdCluster
from tests.support.ha.clients import Clients
from tests.support.ha.group import real_group

BUSY = 2  # processes that never wait
FORMS_S = 25.0
PASSWORD = "of this test"


def set_up_accounts(etcd: EtcdCluster) -> None:
    """The commands of the page."""
    etcd.control("user", "add", f"root:{PASSWORD}")
    etcd.control("user", "grant-role", "root", "root")
    etcd.control("role", "add", "rocketpy")
    etcd.control("role", "grant-permission", "rocketpy", "--prefix=true", "readwrite", "/rocketpy/")
    etcd.control("user", "add", f"broker:{PASSWORD}")
    etcd.control("user", "grant-role", "broker", "rocketpy")
    etcd.control("auth", "enable")
    etcd.account = ("root", PASSWORD)


@contextmanager
def load() -> Iterator[None]:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def test_a_group_with_accounts_forms_under_load(tmp_path: Path, seed: int) -> None:
    """Fault: With accounts in etcd, each request logged in anew, and a group of three did not form under load."""
    password = tmp_path / "password"
    password.write_text(f"{PASSWORD}\n")
    settings = {"haEtcdUser": "broker", "haEtcdPasswordFile": str(password)}
    with load():
        begun_s = time.monotonic()
        with real_group(tmp_path, "abc", etcd_members=3, settings=settings, before=set_up_accounts) as group:
            took_s = time.monotonic() - begun_s
            print(f"in sync {took_s:.1f} s after etcd was started")
            logs = "".join(member.text() for member in group.members.values())
            assert took_s < FORMS_S and "TooSlowError" not in logs
            with Clients(group.servers, group.history, seed):
                first = group.wait_for_master()
                group.history.happened(f"kill -9 of {first}")
                group.members[first].kill_all()
                group.wait_for_master(set("abc") - {first})
                group.members[first].begin()
                group.wait_until_healed()
            group.check()
