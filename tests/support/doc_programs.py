"""Commands and programs of the pages, run as a reader would run them; NAMESRV_ADDR names the broker."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.support.doc_examples import ROOT
from tests.support.waiting import wait_until

MQADMIN = Path(sys.executable).with_name("mqadmin")
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
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout


def run_commands(page: str) -> list[str]:
    """What the page's commands of mqadmin print, one after the other."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines() if line.startswith("mqadmin ")]
    assert lines
    return [output_of([MQADMIN, *shlex.split(line)[1:]]) for line in lines]


def run_examples(examples: list[str]) -> list[str]:
    """What the examples print, one after the other in one interpreter, as a reader would run them."""
    program = f"\nprint({BETWEEN!r})\n".join(examples)
    return output_of([sys.executable, "-c", program]).split(f"{BETWEEN}\n")


def tool_prints(words: list[str]) -> str:
    """What mqadmin prints, whatever its status."""
    return subprocess.run([MQADMIN, *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False).stdout


def run_notebook(page: str) -> list[str]:
    """What the cells of a notebook print; they run in a loop of asyncio, as in Jupyter."""
    cells = json.loads((ROOT / page).read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return output_of([sys.executable, "-c", NOTEBOOK, json.dumps(sources)]).splitlines()


def check_client_page() -> None:
    """Run all of docs/use/client.md and its notebook, on a broker with SQL92 filters.

    Raises:
        AssertionError: an example does not print what it should.
    """
    run_commands("docs/use/client.md")
    examples = run_examples(blocks("docs/use/client.md", "python"))
    send, consume, many, choose, later, order, prefer, transaction, request, values, in_asyncio, traced = examples
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
    tool, *words = traced.split()
    assert tool == "mqadmin"
    wait_until(lambda: "success" in tool_prints(words), f"a trace: {traced}")
    imported = "from rocketpy.client import Message\n"
    under_trio = blocks("docs/use/client.md", "python")[-2].replace("import asyncio", "import trio")
    (in_trio,) = run_examples([imported + under_trio.replace("asyncio.run(main())", "trio.run(main)")])
    assert in_trio.startswith("b'")
    first, *_, found, status = run_notebook("docs/use/examples/orders.ipynb")
    assert first.startswith("Orders@")
    assert found == "True" and status == "SEND_OK"
