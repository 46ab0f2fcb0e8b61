"""A planned change of the master takes more connections along than one selector accepts."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.remoting.command import RemotingCommand
from tests.support.ha.group import Group, real_group
from tests.support.wire import Wire

ROOM = 40
SETTINGS = {"slaveTimeout": "3000", "connectionsMax": str(ROOM), "selectorWorkersMax": "4"}


def selectors_of(group: Group, name: str) -> int:
    return sum(title.startswith("selector") for title in group.members[name].pids())


def answers(wire: Wire) -> bool:
    return wire.ask(RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO)).code == ResponseCode.SUCCESS


def test_connections_of_a_spare_selector_outlive_a_switch_over(tmp_path: Path) -> None:
    """Fault: A member with a spare selector that had not started counted as faulty."""
    with real_group(tmp_path, settings=SETTINGS) as group, contextlib.ExitStack() as stack:
        first = group.master() or ""
        assert [selectors_of(group, name) for name in group.members] == [1, 1]
        wires = [stack.enter_context(Wire.open(group.members[first].port)) for _ in range(2 * ROOM)]
        assert all(map(answers, wires))
        assert selectors_of(group, first) == 3, "the group's own connections are among them"
        group.switch_over(group.other(first))
        group.wait_in_sync()
        assert group.master() == group.other(first)
        assert all(map(answers, wires))
        assert selectors_of(group, first) == 3
        assert "does not run" not in "".join(member.text() for member in group.members.values())
