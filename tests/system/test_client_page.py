"""docs/use/client.md, docs/use/mqadmin.md and the first steps of README.md are true: they run against a broker."""

from __future__ import annotations

import json
import os
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
NOTEBOOK = """
import ast, asyncio, inspect, json, sys

async def run_cells():
    names = {}
    for source in json.loads(sys.argv[1]):
        found = eval(compile(source, "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if inspect.iscoroutine(found):
            await found

asyncio.run(run_cells())
"""


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


def run_notebook(page: str) -> list[str]:
    """What the cells of a notebook print; they run in a loop of asyncio, as in Jupyter."""
    cells = json.loads((ROOT / page).read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return output_of([sys.executable, "-c", NOTEBOOK, json.dumps(sources)]).splitlines()


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningBroker]:
    with running_broker({"enablePropertyFilter": "true"}) as started:
        monkeypatch.setenv("NAMESRV_ADDR", started.namesrv)
        yield started


def test_the_examples_of_the_client_run(broker: RunningBroker) -> None:
    run_commands("docs/use/client.md")
    examples = run_examples(blocks("docs/use/client.md", "python"))
    send, consume, many, choose, later, order, prefer, transaction, request, values, in_asyncio = examples
    assert send.count("\n") == 2
    assert all(consume.count(f"b'order {number}'") >= 1 for number in (1, 2, 3, 4))
    assert many == "{'SEND_OK'}\n"
    assert choose.splitlines() == ["[b'order 1', b'order 2', b'order 4']", "7"]
    assert all(text in later for text in ("half a second", "at a time", "level 1"))
    assert order == "[b'created', b'paid', b'sent']\n"
    assert prefer == "[b'order 6', b'order 7']\n"
    assert transaction.splitlines() == ["LocalTransactionState.COMMIT", "b'order 9'"]
    assert request == "b'PING'\n"
    assert values == "{'number': 9}\n"
    assert in_asyncio.startswith("b'")
    imported = "from rocketpy.client import Message\n"
    under_trio = blocks("docs/use/client.md", "python")[-1].replace("import asyncio", "import trio")
    (in_trio,) = run_examples([imported + under_trio.replace("asyncio.run(main())", "trio.run(main)")])
    assert in_trio.startswith("b'")
    first, *_, found, status = run_notebook("docs/use/examples/orders.ipynb")
    assert first.startswith("Orders@")
    assert found == "True" and status == "SEND_OK"


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
