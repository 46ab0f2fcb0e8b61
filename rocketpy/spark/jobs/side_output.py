"""The side output of a query of `rocketpy pipeline run`: messages whose bodies are not of the declared format.

A query of Spark has one sink. With a side output this is a function that divides each micro-batch and writes both parts
(`QuerySpec.bad` in queries.py). Spark repeats a micro-batch that was cut short, with the same number and messages. The
files of a micro-batch are in a directory of its own, `batch=N`, which a repetition replaces; a Delta table refuses a
number that it has; other formats get the rows again.

The SQL of such a query runs over one micro-batch after the other. Groups, windows and limits would begin anew in each,
so they are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rocketpy.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILES = frozenset({"avro", "csv", "json", "orc", "parquet", "text", "xml"})
DELTA = "delta"
ACROSS_ROWS = re.compile(r"^\W*(Aggregate|Deduplicate\w*|Distinct|EventTimeWatermark|GlobalLimit|Window)\b", re.M)
"""Nodes of a plan whose result depends on more than one row."""


def fault_of(query: Mapping[str, Any]) -> str:
    """Return the reason why a query of a file cannot have a side output; an empty text if it can."""
    if "decode" not in query or query.get("mode", "append") != "append":
        return "bad needs decode, and the mode append"
    for key in ("sink", "bad"):
        if query[key]["format"] in FILES and "path" not in query[key]:
            return f"{key} needs a path"
    return "bad needs a path of its own" if query["sink"].get("path") == query["bad"].get("path", "") else ""


def check_rows_alone(frame: DataFrame, name: str) -> None:
    """Raise ConfigError for a query whose result in a micro-batch depends on other micro-batches."""
    found = ACROSS_ROWS.search(frame._jdf.queryExecution().analyzed().toString())
    if found is not None:
        raise ConfigError(
            f"{found[1]} needs rows of several micro-batches, and a query with bad = {{ … }} sees one at a time: "
            "write the good rows as they are, and let a second query read them",
            key=f"[query.{name}]",
        )


def write_part(rows: DataFrame, sink: Mapping[str, str], number: int, application: str) -> None:
    """Write a part of a micro-batch, in place of what an attempt that was cut short has written.

    Args:
        sink: options of the writer, with `format`.
        application: names the query and the part in a Delta table.
    """
    if rows.isEmpty():  # otherwise each micro-batch without bad rows would leave a file without rows
        return
    options, mode = {key: text for key, text in sink.items() if key != "format"}, "append"
    if sink["format"] in FILES:
        options["path"], mode = f"{sink['path'].rstrip('/')}/batch={number}", "overwrite"
    elif sink["format"] == DELTA:
        options |= {"txnAppId": application, "txnVersion": str(number)}
    rows.write.format(sink["format"]).options(**options).mode(mode).save()
