"""mqadmin's command line itself: its list and help load little, wrong usage and errors are one line."""

import pytest

from rocketpy.admin.cli import main
from rocketpy.admin.commands import REGISTRY
from tests.support.admin import Mqadmin, one_broker
from tests.support.cluster import NAME_SERVER, FakeCluster

WITH_A_FILE = {"switchMaster", "haElect", "haConfigure"}  # they reach etcd by the file of a broker


@pytest.mark.parametrize("arguments", [[], ["help"], ["--help"]])
def test_the_list_of_commands_imports_none_of_them(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in REGISTRY)


@pytest.mark.parametrize("name", REGISTRY)
def test_every_command_has_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Holds: admin, mqadmin."""
    assert main([name, "--help"]) == 0
    printed = capsys.readouterr().out
    example = f"mqadmin {name} {'-f' if name in WITH_A_FILE else '-n'}"
    assert example in printed
    assert "--namesrvAddr" in printed
    assert main(["help", name.upper()]) == 0
    assert example in capsys.readouterr().out


def test_wrong_usage_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bogus"]) == 2
    assert "bogus" in capsys.readouterr().err
    assert main(["topicRoute"]) == 2
    assert "'-t'" in capsys.readouterr().err


def test_errors_are_one_line(mqadmin: Mqadmin) -> None:
    def unreachable(cluster: FakeCluster) -> None:
        cluster.name_server.unreachable = True

    assert mqadmin("topicList", script=unreachable, status=1) == []
    assert mqadmin.error.count("\n") == 1 and NAME_SERVER in mqadmin.error


def test_spellings(mqadmin: Mqadmin) -> None:
    for spelling in (["-t", "T"], ["-tT"], ["--topic", "T"], ["--topic=T"]):
        assert mqadmin("TOPICCLUSTERLIST", *spelling, script=one_broker) == ["DefaultCluster"]
