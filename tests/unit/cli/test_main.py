"""How a server command prepares the process that its workers are forked from."""

import linecache
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from rocketpy.cli import main
from tests.support.descriptors import high_descriptors


class Child:
    """Stands for the process that parses the arguments; `wait` makes a class as the modules of a server do."""

    def __init__(self, read: Callable[..., Any]) -> None:
        """As main._Child."""

    def import_meanwhile(self, names: object) -> None:
        attrs.make_class("Made", ["field"])

    def wait(self) -> tuple[None, int]:
        return None, 7


def test_a_server_keeps_no_text_of_generated_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linecache, "cache", {})
    monkeypatch.setattr(main, "_Child", Child)
    assert main._serve("broker", "mqbroker") == 7
    assert not linecache.cache


def test_lines_of_files_are_found_for_tracebacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linecache, "cache", main.WithoutGeneratedText())
    assert linecache.getline(__file__, 1).startswith('"""How a server')
    assert list(linecache.cache) == [__file__]


def test_the_arguments_are_read_also_with_many_descriptors() -> None:
    """Fault: A server that inherited a thousand open descriptors did not start."""
    with high_descriptors():
        child = main._Child(lambda deliver: deliver("order"))
        child.import_meanwhile(["json"])
        assert child.wait() == ("order", 0)
