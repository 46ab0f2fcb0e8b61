"""`--watch`: rounds that follow one another, a screen that is drawn at once, an end by Ctrl-C that is no failure."""

import signal
import sys

import click
import pytest

from rocketpy.admin.cli import mqadmin as group
from rocketpy.admin.commands import REGISTRY
from rocketpy.admin.watching import CLEAR_BELOW, CLEAR_LINE, HOME, screen
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.bodies.topic import TopicList
from rocketpy.remoting.command import RemotingCommand
from tests.support.admin import Mqadmin
from tests.support.cluster import FakeCluster, no

REPEATED = {
    "brokerConsumeStats",
    "brokerStatus",
    "clusterList",
    "consumerConnection",
    "consumerProgress",
    "haStatus",
    "producer",
    "producerConnection",
    "statsAll",
    "timerStatus",
    "topicList",
    "topicRoute",
    "topicStatus",
}


class Topics:
    """Answers the name server's topic list, another one in each round; `interrupt`: Ctrl-C in that round."""

    def __init__(self, *, failing: int = 0, interrupt: int = 0) -> None:
        self.round = 0
        self._failing, self._interrupt = failing, interrupt

    def __call__(self, cluster: FakeCluster) -> None:
        cluster.name_server.answers[RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER] = self._answer

    def _answer(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        self.round += 1
        if self.round == self._interrupt:
            signal.raise_signal(signal.SIGINT)
        if self.round == self._failing:
            return no(ResponseCode.SYSTEM_ERROR, "restarting")
        return RemotingCommand.response(body=TopicList(topic_list=[f"round-{self.round}"]).encode())


def test_rounds_follow_one_another(mqadmin: Mqadmin) -> None:
    lines = mqadmin("topicList", "--watch", "5", "--rounds", "3", script=Topics())
    assert lines == ["round-1", "round-2", "round-3"]
    lines = mqadmin("topicList", "--watch", "5", "--rounds", "2", "--output", "json", script=Topics())
    assert lines == ['{"topic": "round-1"}', '{"topic": "round-2"}']
    mqadmin("topicList", "--rounds", "2", script=Topics(), status=2)


def test_a_later_round_may_fail_but_not_the_first(mqadmin: Mqadmin) -> None:
    watch = ("topicList", "--watch", "5", "--rounds", "3")
    assert mqadmin(*watch, script=Topics(failing=2)) == ["round-1", "round-3"]
    assert "restarting" in mqadmin.error
    assert mqadmin(*watch, script=Topics(failing=1), status=1) == []
    assert mqadmin(*watch, script=Topics(failing=3), status=1) == ["round-1", "round-2"]


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_it_with_status_0(mqadmin: Mqadmin, backend: str) -> None:
    watch = ("topicList", "--watch", "5", "--rounds", "9")
    lines = mqadmin(*watch, script=Topics(interrupt=3))
    assert lines[:2] == ["round-1", "round-2"] and "round-4" not in lines
    assert mqadmin("topicList", script=Topics(interrupt=1), status=1) == []


def test_a_terminal_is_drawn_anew(mqadmin: Mqadmin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    text = "\n".join(mqadmin("topicList", "--watch", "5", "--rounds", "2", script=Topics()))
    assert text.count(HOME) == 2 and text.count(CLEAR_BELOW) == 2
    first, second = text.split(CLEAR_BELOW)[:2]
    assert first.startswith(f"{HOME}{CLEAR_LINE}topicList, every 5 s: ") and f"{CLEAR_LINE}round-1" in first
    assert "round-1" not in second and f"{CLEAR_LINE}round-2" in second


def test_a_page_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("LINES", "7")
    drawn = screen("heading", ["a" * 40, "\x1b[2Jb", "c", "d\ne"]).removesuffix(CLEAR_BELOW).removeprefix(HOME)
    lines = [line.removeprefix(CLEAR_LINE) for line in drawn.splitlines()]
    assert lines == ["heading", "", "a" * 30, "a" * 10, "\\x1b[2Jb", "... 3 lines more"]
    assert len(lines) < 7, "the line feed behind the last one must not scroll"


def test_commands_that_people_repeat_can_be_watched() -> None:
    context = click.Context(group)
    watchable = {
        name
        for name in REGISTRY
        if any("--watch" in param.opts for param in getattr(group.get_command(context, name), "params", ()))
    }
    assert watchable == REPEATED
