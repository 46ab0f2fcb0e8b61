"""docs/use/spark.md is true: its examples run; docs/use/spark-options.md has every option and column."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from rocketpy.spark.columns import COLUMNS
from rocketpy.spark.options import NOT_THERE
from rocketpy.spark.outgoing import COLUMNS as SINK_COLUMNS
from rocketpy.spark.outgoing import SinkOptions
from rocketpy.spark.store_options import StoreOptions
from rocketpy.spark.topic_options import TopicOptions
from tests.spark.test_segments import make_store
from tests.support.broker import RunningBroker, running_broker
from tests.support.doc_examples import ROOT
from tests.support.readers import wait_for_readers

PAGE = (ROOT / "docs/use/spark.md").read_text()
OPTIONS = (ROOT / "docs/use/spark-options.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("kind", [TopicOptions, StoreOptions, SinkOptions])
def test_every_option_is_on_the_page(kind: Any) -> None:
    keys = {field.metadata["key"] for field in attrs.fields(kind)}
    assert {key for key in keys if f"`{key}`" not in OPTIONS} == set()


def test_every_column_is_on_the_page() -> None:
    assert {name for name in COLUMNS if f"`{name}`" not in OPTIONS} == set()
    assert {name for name in SINK_COLUMNS if f"`{name}`" not in PAGE} == set()


def test_options_on_the_page_exist() -> None:
    rows = re.findall(r"^- ((?:`\w+`(?:, )?)+)[ :\n]", OPTIONS[OPTIONS.index("## Options") :], re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row) if name.lower() not in NOT_THERE}
    fields = (field for kind in (TopicOptions, StoreOptions, SinkOptions) for field in attrs.fields(kind))
    assert len(named) > 40 and named <= {field.metadata["key"] for field in fields}


def test_every_refused_option_is_on_the_page() -> None:
    section = OPTIONS[OPTIONS.index("### Not there") : OPTIONS.index("### Of a store")]
    assert NOT_THERE.keys() <= {name.lower() for name in re.findall(r"`(\w+)`", section)}


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker() as started:
        yield started


def test_the_examples_run(
    spark: Any, broker: RunningBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One after the other, as a reader would, with addresses and paths of this test."""
    make_store(tmp_path / "store", 60)
    assert len(EXAMPLES) == 6
    scope: dict[str, Any] = {}
    for example in EXAMPLES:
        code = (
            example.replace("127.0.0.1:9876", broker.namesrv)
            .replace("port=5560", "port=0")
            .replace("/tmp/numbers-copy", str(tmp_path / "copy"))
        )
        exec(code.replace("/var/lib/rocketpy/store", str(tmp_path / "store")), scope)
    scope["metrics"].close()
    assert scope["bad"].count() == 1000, "numbers are no orders"
    printed = capsys.readouterr().out
    assert printed.count("|  t0|  334|") == 2, "the table and the stream count the same"
    assert scope["store"].count() == 60
    wait_for_readers(broker.port)
    copied = scope["frame"].sparkSession.read.format("rocketmq").option("nameServer", broker.namesrv)
    assert copied.option("topic", "NumbersCopy").load().count() == 1000


@pytest.mark.parametrize("name", ["rocketmq", "rocketmq_store"])
def test_installed_sources_are_found_by_their_name(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What Spark does with installed packages whose name begins with pyspark_."""
    monkeypatch.syspath_prepend(str(ROOT / "rocketpy/spark/shims"))
    module = __import__(f"pyspark_{name}")
    assert module.DefaultSource.name() == name
    options = {"nameServer": "n:1", "topic": "T"} if name == "rocketmq" else {"path": str(tmp_path)}
    source = module.DefaultSource(options)
    assert source.name() == name and "body binary" in source.schema()
    monkeypatch.delitem(sys.modules, f"pyspark_{name}")
