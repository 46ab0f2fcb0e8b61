"""docs/use/coming-from.md: every call of ours in it is there, with these arguments."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

from rocketpy import client, errors
from rocketpy.admin.admin import Admin
from rocketpy.client import sync
from tests.support.rules import ROOT, enough, hold

ASYNC = {**vars(errors), **{name: getattr(client, name) for name in client.__all__}, "Admin": Admin}
INSTANCES = {"producer": "TransactionProducer", "consumer": "PullConsumer", "message": "ReceivedMessage"}


def calls() -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the calls in the second column, with the names of their section."""
    page = (ROOT / "docs/use/coming-from.md").read_text(encoding="utf-8")
    for section in page.split("\n## ")[1:]:
        names = ASYNC | vars(sync) if section.startswith("From rocketmq-client-python") else ASYNC
        for row in re.findall(r"^\| `.+? \| (.+) \|$", section, re.MULTILINE):
            yield from ((call, names) for call in re.findall(r"`([^`]+)`", row) if re.search(r"[.(]", call))


def check(call: str, names: dict[str, object]) -> None:
    """Raise an error unless the names of an expression are there, and calls have arguments that are taken."""
    for node in ast.walk(ast.parse(call, mode="eval")):
        if isinstance(node, ast.Attribute) or (isinstance(node, ast.Name) and node.id[0].isupper()):
            value(node, names)
        if isinstance(node, ast.Call):
            function = value(node.func, names)
            needs_self = inspect.isfunction(function) and isinstance(node.func, ast.Attribute)
            arguments = [*([None] if needs_self else []), *node.args]
            inspect.signature(function).bind(*arguments, **{word.arg or "": None for word in node.keywords})


def value(node: ast.expr, names: dict[str, object]) -> Any:
    if isinstance(node, ast.Attribute):
        return getattr(value(node.value, names), node.attr)
    assert isinstance(node, ast.Name)
    return names[INSTANCES.get(node.id, node.id)]


def fault(call: str, names: dict[str, object]) -> str:
    """Return what is wrong with an expression; empty: nothing."""
    try:
        check(call, names)
    except (KeyError, AttributeError, TypeError) as error:
        return repr(error)
    return ""


def test_every_call_is_there() -> None:
    found = enough(calls(), 45, "calls")
    hold((f"{call}: {wrong}" for call, names in found if (wrong := fault(call, names))), "name a call that is there")


@pytest.mark.parametrize(
    "call", ["producer.sent(m)", "Producer(a, b, c)", "PushOptions(order=True)", "Producers(g)", "consumer.seek(q)"]
)
def test_a_call_that_is_not_there_is_seen(call: str) -> None:
    assert fault(call, ASYNC)
