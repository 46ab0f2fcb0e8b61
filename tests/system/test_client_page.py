"""docs/use/client.md, docs/use/mqadmin.md and the first steps of README.md are true: they run against a broker."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.support.broker import RunningBroker, running_broker
from tests.support.doc_programs import MQADMIN, blocks, check_client_page, run_commands, run_examples

ADDRESS = "127.0.0.1:9876"
TIMEOUT_S = 120.0


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningBroker]:
    with running_broker({"enablePropertyFilter": "true"}) as started:
        monkeypatch.setenv("NAMESRV_ADDR", started.namesrv)
        yield started


def test_the_examples_of_the_client_run(broker: RunningBroker) -> None:
    check_client_page()


def run_in_shell(script: str, directory: Path) -> str:
    """What a script prints; a command that fails in a pipeline fails it. `mqadmin` is the one of this environment."""
    path = f"{MQADMIN.parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail"],
        input=script,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
        cwd=directory,
        env=os.environ | {"PATH": path},
    ).stdout


@pytest.mark.long
def test_the_first_message_of_the_readme_and_the_copies_of_mqadmin(broker: RunningBroker, tmp_path: Path) -> None:
    commands = run_commands("README.md")
    assert "hello" in commands[-1], "consumeMessage shows what sendMessage sent"
    (printed,) = run_examples([blocks("README.md", "python")[0].replace(ADDRESS, broker.namesrv)])
    assert "Greetings" in printed
    (copies,) = blocks("docs/use/mqadmin.md", "sh")
    run_in_shell(copies, tmp_path)
    again = copies.splitlines()[-1]
    assert "SEND_OK" not in run_in_shell(again, tmp_path), "all were sent"
    lines = run_in_shell("mqadmin consumeMessage -t Copy --all --output json", tmp_path).splitlines()
    assert [json.loads(line)["body"] for line in lines].count("order 1") == 2 and len(lines) == 5
