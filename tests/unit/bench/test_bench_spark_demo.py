"""README.md shows lines that the demo has printed."""

from __future__ import annotations

import pytest

from bench import spark_demo

OUTPUT = """starting Spark ...
broker   name server at 127.0.0.1:1, store in /tmp/x
send       11.15 s      89,686/s   topic Orders with 4 queues
read        2.81 s     355,872/s   a table
stream     10.61 s      94,251/s   8 micro-batches
archive     3.05 s     327,869/s   5 Parquet files
checked: send: 1,000,000 messages
checked: the archive has what the topic has
wrote x
"""


def test_the_lines_of_the_readme_are_those_of_a_run() -> None:
    lines = spark_demo.shown(OUTPUT)
    assert [line.split()[0] for line in lines.splitlines()] == ["send", "read", "stream", "archive", "checked:"]
    readme = spark_demo.README.read_text(encoding="utf-8")
    text = spark_demo.with_output(readme, lines)
    assert f"[machine and load](bench/results/{spark_demo.PAGE.name})):\n\n```\n{lines}```\n" in text
    bare = spark_demo.with_output(text, "")
    assert "archive     3.05 s" not in bare and spark_demo.with_output(bare, lines) == text


def test_the_readme_shows_the_lines_of_the_result() -> None:
    """None, if there is no result."""
    readme = spark_demo.README.read_text(encoding="utf-8")
    expected = spark_demo.with_output(readme, spark_demo.lines_of_result())
    assert readme == expected, "run `python -m bench.spark_demo`"


def test_a_run_that_lacks_a_line_or_a_readme_that_lacks_the_block_is_an_error() -> None:
    with pytest.raises(LookupError, match="4 of 5"):
        spark_demo.shown(OUTPUT.replace("checked: the archive", "DOES NOT HOLD: the archive"))
    with pytest.raises(LookupError, match="no place for the demo"):
        spark_demo.with_output("# README", "")
