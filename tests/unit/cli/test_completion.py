"""Completion: the scripts that shells read, and what the programs answer when they are asked as those scripts ask."""

import shutil
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

from rocketpy.admin.cli import main as mqadmin_main
from rocketpy.admin.commands import REGISTRY
from rocketpy.cli.command_line import cli
from rocketpy.cli.completion import SHELLS, variable_of

PROGRAMS = ("rocketpy", "mqadmin", "mqbroker", "mqnamesrv")


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        cli(["completion", shell], prog_name="rocketpy")
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_gets_a_script_that_it_understands(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    assert all(f"{variable_of(program)}={shell}_complete" in text for program in PROGRAMS)
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=text, text=True, check=True)


def completions(words: list[str], incomplete: str) -> list[str]:
    return [item.value for item in ShellComplete(cli, {}, "rocketpy", "").get_completions(words, incomplete)]


def test_rocketpy_and_its_admin_commands() -> None:
    assert completions([], "st") == ["standalone", "store"]
    assert completions(["completion"], "z") == ["zsh"]
    assert completions(["admin"], "topicr") == ["topicRoute"]
    assert completions(["admin", "--tls"], "haS") == ["haStatus"]
    assert completions(["admin", "topicRoute"], "--to") == ["--topic"]
    assert completions(["admin", "updateOrderConf", "-m"], "d") == ["delete"]


def test_mqadmin_answers_bash(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for number, name in enumerate(("COMP_WORDS", "COMP_CWORD", variable_of("mqadmin"))):
        monkeypatch.setenv(name, ("mqadmin consumerP", "1", "bash_complete")[number])
    before = set(sys.modules)
    with pytest.raises(SystemExit) as ended:
        mqadmin_main([])
    assert ended.value.code == 0 and capsys.readouterr().out == "plain,consumerProgress\n"
    assert not {name for name in set(sys.modules) - before if name.startswith("rocketpy.admin.commands.")}


def test_commands_are_completed_with_their_summaries(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("COMP_WORDS", "mqadmin "), ("COMP_CWORD", "topic"), (variable_of("mqadmin"), "fish_complete")):
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        mqadmin_main([])
    printed = capsys.readouterr().out
    assert f"plain,topicRoute\t{REGISTRY['topicRoute'].summary}" in printed
