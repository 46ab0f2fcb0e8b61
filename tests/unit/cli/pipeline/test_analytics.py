"""The reports of jobs that ask Spark's SQL, without Spark."""

from __future__ import annotations

import pytest

from rocketpy.cli.pipeline.analytics import print_report
from rocketpy.spark.jobs.report import JobReport


def test_names_of_strangers_are_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    """Fault: Tables of `rocketpy pipeline` gave a terminal the control sequences in names and tags."""
    print_report(JobReport("stats", tables={"tags": [{"tag": "[red]\x1b]0;title\x07"}]}), as_json=False)
    assert "[red]\\x1b]0;title\\x07" in capsys.readouterr().out
