"""What analytics jobs read: how they reach brokers, and what is refused before Spark is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rocketpy.cli.command_line import cli
from rocketpy.client.options import ClientOptions
from rocketpy.remoting.signature import Credentials
from rocketpy.spark.jobs import inputs
from rocketpy.spark.jobs.dedup_stream import DedupStream
from rocketpy.spark.jobs.inputs import Input
from rocketpy.spark.jobs.target import asked_of
from rocketpy.spark.jobs.windows import Windows

SECRETS = {"accessKey": "me", "secretKey": "hidden"}


def test_brokers_with_access_control_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "credentials"
    file.write_text("accessKey=me\nsecretKey=hidden\n")
    source = Input(name_server="n:1", topics=("T",), connection={"credentialsFile": str(file)})
    given: dict[str, Any] = {}
    monkeypatch.setattr(inputs, "read", lambda spark, **options: given.update(options))
    source.frame(object(), ("body",))  # type: ignore[arg-type]
    assert given["credentialsFile"] == str(file) and given["nameServer"] == "n:1" and given["subscribe"] == "T"
    asked: list[ClientOptions] = []
    monkeypatch.setattr(inputs.CLUSTERS, "get", asked.append)
    assert source.cluster is None
    assert asked[0].credentials == Credentials("me", "hidden")


def test_secrets_are_neither_written_nor_shown() -> None:
    for wanted in (Windows("n:1", "T", connection=SECRETS), DedupStream("n:1", ("T",), connection=SECRETS)):
        assert "hidden" not in str(asked_of(wanted)) + repr(wanted)
    assert "hidden" not in repr(Input(name_server="n:1", topics=("T",), connection=SECRETS))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["stats"], "name one input: --name-server with --topic, --store, or --archive"),
        (["stats", "--store", "nowhere"], "nowhere is not a directory"),
        (["trace", "-n", "n:1", "--option", "secretKeys=x"], 'secretKeys: unknown option; did you mean "secretKey"?'),
        (["trace", "-n", "n:1", "--option", "credentialsFile=nowhere"], "nowhere: cannot be read on this machine"),
        (["trace", "--store", ".", "--option", "vipChannel=true"], "--option: belongs to --name-server"),
        (["stats", "-n", "n:1"], "--name-server needs topics: name them with --topic"),
        (["stats", "-n", "n:1", "-t", "T", "--watch", "5"], "--watch: needs --name-server and --group"),
        (["dedup", "--stream", "table"], "--stream: reads topics of running brokers"),
        (["dedup", "--stream", "-n", "n:1", "-t", "T", "--option", "x", "table"], '--option: "x" is not KEY=VALUE'),
        (["windows", "-n", "n:1", "-t", "T", "--option", "accessKey=x", "table"], "secretKey: is missing"),
    ],
)
def test_arguments_are_checked_before_spark_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)

    def start(*_: Any, **__: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("rocketpy.cli.pipeline.analytics.job_session", start)
    done = CliRunner().invoke(cli, ["pipeline", *words])
    assert done.exit_code == 2 and isinstance(done.exception, SystemExit)
    assert message in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "table").exists()
