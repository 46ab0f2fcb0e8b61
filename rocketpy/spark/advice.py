"""Options that would save work in a query: Spark reads what it then throws away.

Spark offers Python sources no pruning of columns, in any version. It offers them filters (`pushFilters`), but up to 4.3
keeps what a source has pushed for later queries of the same DataFrame, which then lack rows. So the sources take
neither; both are chosen by options, and this module names those, by the text of a query's plan: `explain` before a
query, `advise` in the log after each query of a session, as Spark tells its own listeners of the plan.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
import io
import logging
import re
import zoneinfo
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLE = re.compile(r"RelationV2\[(?P<columns>[^\]]*)\] (?P<source>rocketmq(?:_store)?)\b")
STREAM = re.compile(
    r"StreamingRelationV2 \S+, (?P<source>rocketmq(?:_store)?), .*, \[(?P<columns>[^\]]*)\](?:, name=.*)?$"
)
INDENT = " :|+-"
ATTRIBUTE = re.compile(r"(\w+)#(\d+)")
COMPARISON = re.compile(r"\((\w+)#\d+L? (=|>=|>|<=|<) ([^()#]+)\)")  # with a value, not with another column
MEMBERSHIP = re.compile(r"\b(\w+)#\d+L? IN \(([^()#]+)\)")
PASSES_ALL = ("Filter", "Sort", "GlobalLimit", "LocalLimit", "Sample", "Repartition", "RepartitionByExpression")
NAMES_ONLY = ("SubqueryAlias ", "View ")
READS_NOTHING = ("CreateViewCommand",)
MAX_TOLD = "more fields"  # of a list that Spark cuts short
LINES_MAX = 100  # of a session: the values of its queries may be others each time
LISTENER = "_rocketpy_advises"  # attribute of a session
BUS_EMPTY_MS = 5000

logger = logging.getLogger(__name__)


@attrs.frozen
class Line:
    """A node of a plan."""

    depth: int
    text: str


def explain(frame: DataFrame) -> None:
    """Print the plan of a query, and the options that would save work."""
    frame.explain()
    for line in advice(frame):
        print(f"rocketpy: {line}")


def advise(spark: SparkSession) -> SparkSession:
    """Log after each query of a session the options that would have saved work: each line once. Not by Spark Connect,
    whose plans are in the server, and not of streams."""
    from pyspark.java_gateway import ensure_callback_server_started

    if not hasattr(spark, LISTENER):
        ensure_callback_server_started(spark.sparkContext._gateway)
        listener = PlanListener()
        setattr(spark, LISTENER, listener)
        spark._jsparkSession.listenerManager().register(listener)
        atexit.register(_wait_for_listeners, spark)
    return spark


class PlanListener:
    """A listener of Spark's JVM, which calls it in a thread of its own."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def onSuccess(self, action: str, execution: Any, duration_ns: int) -> None:
        plan = execution.optimizedPlan().toString()
        zone = execution.sparkSession().conf().get("spark.sql.session.timeZone")
        for line in advice_of(plan, zone):
            if line not in self._told and len(self._told) < LINES_MAX:
                self._told.add(line)
                logger.warning("query %s would read less: %s", action, line)

    def onFailure(self, action: str, execution: Any, error: Any) -> None:
        """A query that failed has an error to tell."""

    class Java:
        """The name of the Java interface, for py4j."""

        implements: ClassVar = ["org.apache.spark.sql.util.QueryExecutionListener"]


def _wait_for_listeners(spark: SparkSession) -> None:
    """Let the JVM finish its calls before this process ends: it would log that one has failed."""
    from py4j.protocol import Py4JError

    context = spark.sparkContext._jsc
    if context is not None:  # of a stopped one nothing waits
        with contextlib.suppress(Py4JError, OSError):
            context.sc().listenerBus().waitUntilEmpty(BUS_EMPTY_MS)


def advice(frame: DataFrame) -> list[str]:
    """Return the options that would save work, a line for each; none if there are none."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        frame.explain(extended=True)
    zone = str(frame.sparkSession.conf.get("spark.sql.session.timeZone"))
    plan = _section(printed.getvalue(), "Optimized")
    # Spark optimizes no stream that is read through a view, as in spark.sql(…, source=…).
    if "AnalysisException" in plan:
        plan = _section(printed.getvalue(), "Analyzed")
    return list(dict.fromkeys(advice_of(plan, zone)))


def _section(text: str, name: str) -> str:
    return text.partition(f"== {name} Logical Plan ==\n")[2].partition("\n== ")[0]


def advice_of(plan: str, zone: str) -> Iterator[str]:
    """Yield advice for a logical plan.

    Args:
        zone: the time zone in which the plan writes times.
    """
    lines = [_line(text) for text in plan.splitlines() if text.strip()]
    if lines and lines[0].text.startswith(READS_NOTHING):
        return
    lines = [line for line in lines if not line.text.startswith(NAMES_ONLY)]
    for at, line in enumerate(lines):
        match = TABLE.match(line.text) or STREAM.match(line.text)
        if match is None:
            continue
        above = list(_above(lines, at))
        columns = ATTRIBUTE.findall(match["columns"])
        if MAX_TOLD not in plan and (used := _used(columns, above)) is not None and len(used) < len(columns):
            names = ",".join(used) or "queueId"
            yield f"{match['source']} reads {len(columns)} columns for {len(used)}: set the option columns={names}"
        if above and above[0].text.startswith("Filter ") and " OR " not in above[0].text:
            yield from _of_filter(above[0].text, match["source"], zone)


def _line(text: str) -> Line:
    """Read a node of a plan; those of streams have a tilde before them."""
    node = text.lstrip(INDENT)
    return Line(len(text) - len(node), node.removeprefix("~"))


def _above(lines: list[Line], at: int) -> Iterator[Line]:
    """Return the nodes from a line up to the root."""
    depth = lines[at].depth
    for line in reversed(lines[:at]):
        if line.depth < depth:
            depth = line.depth
            yield line


def _used(columns: list[tuple[str, str]], above: list[Line]) -> list[str] | None:
    """Return the columns that nodes above name; None if the query returns all."""
    if all(line.text.startswith(PASSES_ALL) for line in above):
        return None
    named = {number for line in above for _, number in ATTRIBUTE.findall(line.text)}
    return [name for name, number in columns if number in named]


def _of_filter(text: str, source: str, zone: str) -> Iterator[str]:
    """Yield advice for a condition over the columns by which a source chooses."""
    found = [(name, sign, [value]) for name, sign, value in COMPARISON.findall(text)]
    found += [(name, "=", values.split(",")) for name, values in MEMBERSHIP.findall(text)]
    for name, sign, values in found:
        of_source = _of_store if source == "rocketmq_store" else _of_topics
        try:
            option = of_source(name, sign, values, zone)
        except (ValueError, zoneinfo.ZoneInfoNotFoundError):  # a year that Python does not have; a zone like +01:00
            continue
        if option:
            yield f"{source} reads rows without {name} {sign} {','.join(values)}, too: set the option {option}"


def _of_topics(name: str, sign: str, values: list[str], zone: str) -> str:
    if (name, sign) == ("queueId", "="):
        return f'assign={{"TOPIC": {{"BROKER": [{", ".join(values)}]}}}}'
    if (name, sign) == ("tags", "="):
        return f"subExpression={' || '.join(values)}"
    if (name, sign) == ("topic", "="):
        return f"subscribe={','.join(values)}"
    if name == "queueOffset" and sign != "=":
        return f"{'starting' if sign[0] == '>' else 'ending'}Offsets (JSON)"
    if name == "storeTimestamp" and sign != "=":
        return f"{'starting' if sign[0] == '>' else 'ending'}Timestamp={_bound_ms(values[0], sign, zone)}"
    return ""


def _of_store(name: str, sign: str, values: list[str], zone: str) -> str:
    if (name, sign) == ("queueId", "="):
        return f"queueIds={','.join(values)}"
    if (name, sign) == ("topic", "="):
        return f"topics={','.join(values)}"
    if name == "storeTimestamp" and sign != "=":
        return f"{'from' if sign[0] == '>' else 'to'}StoreTimestamp={_bound_ms(values[0], sign, zone)}"
    return ""


def _bound_ms(text: str, sign: str, zone: str) -> int:
    """Return the option's value: starts are inclusive, ends are exclusive. Store times have whole milliseconds.

    Raises:
        ValueError: not a time of the years 1 to 9999. ZoneInfoNotFoundError: not the name of a zone.
    """
    time = datetime.datetime.fromisoformat(text).replace(tzinfo=zoneinfo.ZoneInfo(zone))
    micros = (time - datetime.datetime.fromtimestamp(0, datetime.UTC)) // datetime.timedelta(microseconds=1)
    return micros // 1000 + 1 if sign in (">", "<=") else -(-micros // 1000)
