"""docs/use/client.md and the first steps of README.md are true: their commands and examples run against a broker."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.support.broker import RunningBroker, running_broker
from tests.support.doc_examples import ROOT

MQADMIN = Path(sys.executable).with_name("mqadmin")
ADDRESS = "127.0.0.1:9876"
BETWEEN = "--- next ---"
TIMEOUT_S = 120.0


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def output_of(command: list[str | Path]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout


def run_commands(page: str) -> list[str]:
    """What the page's commands of mqadmin print, one after the other."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines() if line.startswith("mqadmin ")]
    assert lines
    return [output_of([MQADMIN, *shlex.split(line)[1:]]) for line in lines]


def run_examples(examples: list[str]) -> list[str]:
    """What the examples print, one after the other in one interpreter, as a reader would run them."""
    program = f"\nprint({BETWEEN!r})\n".join(examples)
    return output_of([sys.executable, "-c", program]).split(f"{BETWEEN}\n")


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningBroker]:
    with running_broker({"enablePropertyFilter": "true"}) as started:
        monkeypatch.setenv("NAMESRV_ADDR", started.namesrv)
        yield started


def test_the_examples_of_the_client_run(broker: RunningBroker) -> None:
    run_commands("docs/use/client.md")
    examples = run_examples(blocks("docs/use/client.md", "python"))
    send, consume, choose, later, order, transaction, request, in_asyncio = examples
    assert send.count("\n") == 2
    assert all(consume.count(f"b'order {number}'") >= 1 for number in (1, 2, 3, 4))
    assert choose.splitlines() == ["[b'order 1', b'order 2', b'order 4']", "7"]
    assert all(text in later for text in ("half a second", "at a time", "level 1"))
    assert order == "[b'created', b'paid', b'sent']\n"
    assert transaction.splitlines() == ["LocalTransactionState.COMMIT", "b'order 9'"]
    assert request == "b'PING'\n"
    assert in_asyncio.startswith("b'")


def test_the_first_message_of_the_readme(broker: RunningBroker) -> None:
    commands = run_commands("README.md")
    assert "hello" in commands[-1], "consumeMessage shows what sendMessage sent"
    (printed,) = run_examples([blocks("README.md", "python")[0].replace(ADDRESS, broker.namesrv)])
    assert "Greetings" in printed
