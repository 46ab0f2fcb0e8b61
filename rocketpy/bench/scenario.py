"""Scenario files: a load in the vocabulary of the OpenMessaging benchmark, as YAML or TOML.

A key that has a list instead of one value is swept: the scenario has a point for each value (for each pair of values of
two lists), and a result names its points by what differs. `quick` makes one of them small, to see that it runs.

    name: queues
    topics: 1
    partitionsPerTopic: [1, 100, 10000]
    messageSize: 1024
    producersPerTopic: 16
    testDurationMinutes: 0.5
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import attrs

from rocketpy.errors import ConfigError

POINTS_MAX = 64
QUEUES_MAX = 200_000  # of all topics: each has requests of its own in memory
FIELDS_OF_KEYS = {"consumerBacklogSizeGB": "consumer_backlog_size_gb"}  # the others follow from their names
KINDS = {"str": "text", "bool": "true or false", "int": "a whole number", "float": "a number"}
STAMP_BYTES = 8  # a body begins with the time at which it was due
KINDS_OF_MESSAGES = 100  # beside a filter: as many as a property has values
FILTERED_QUEUES_MAX = QUEUES_MAX // KINDS_OF_MESSAGES
TAGS = re.compile(r"\*|[\w-]+( *\|\| *[\w-]+)*")


def key(default: Any, text: str, low: float = 0, high: float = 1e9) -> Any:
    """Declare a key of scenario files. Numbers lie between `low` and `high`; whole ones stay whole."""
    return attrs.field(default=default, metadata={"text": text, "low": low, "high": high})


@attrs.frozen(kw_only=True)
class Scenario:
    """One point of a scenario file: every key has one value."""

    name: str = key("", "name of the result")
    topics: int = key(1, "number of topics, made for the run and deleted after it", 1, 10_000)
    partitions_per_topic: int = key(16, "queues of each topic on each broker", 1, 65_536)
    message_size: int = key(1024, "bytes of a body", STAMP_BYTES, 4 << 20)
    producers_per_topic: int = key(1, "connections that send, to each broker", 0, 10_000)
    producer_rate: float = key(0, "messages per second of all producers; 0: closed loop")
    subscriptions_per_topic: int = key(1, "groups that read everything; 0: nothing is read", 0, 100)
    consumer_per_subscription: int = key(1, "connections of a group, which share the queues", 1, 10_000)
    consumer_backlog_size_gb: float = key(0, "GB that lie in the topics before consumers start", 0, 1000)
    test_duration_minutes: float = key(1, "minutes that are measured, in each run", 0.01, 10_000)
    warmup_duration_minutes: float = key(0.1, "minutes before, which are not", 0, 1000)
    in_flight_per_producer: int = key(64, "requests of a producer without an answer, at most", 1, 4096)
    batch_size: int = key(1, "messages of one send", 1, 4096)
    pull_batch_size: int = key(32, "messages asked for in one pull", 1, 1024)
    transactions: bool = key(False, "each send is a half message, committed at once")
    delay_level: int = key(0, "delay level of each message; end to end counts from its delivery time", 0, 18)
    delay_millis: int = key(0, "the same as a time, for brokers with timers", 0, 86_400_000)
    filter_expression: str = key(
        "", "of the groups, tags or SQL92; message n has the tag Tag(n mod 10) and a property number, n mod 100"
    )
    random_reads: bool = key(
        False, "read pages of the backlog instead of sending, in random order, each once before any again"
    )
    cold_reads: bool = key(
        False,
        "drop the store of a broker that `rocketpy bench` starts itself from memory before, so that reads come "
        "from the disk; random ones are few (1 of 128 messages), for they warm the store",
    )
    idle_connections: int = key(0, "clients of the first broker that only send heartbeats, beside the load", 0, 200_000)
    kill_after: bool = key(False, "kill -9 such a broker after each run, and measure its recovery")
    tls: bool = key(False, "connections to a broker that `rocketpy bench` starts itself use TLS")
    accounts: bool = key(False, "such a broker has accounts, and requests are signed")
    slaves: int = key(0, "slaves of a broker that `rocketpy bench` starts itself", 0, 4)
    broker: Mapping[str, str] = attrs.field(
        factory=dict, metadata={"text": "properties of a broker that `rocketpy bench` starts itself"}
    )

    @property
    def queues(self) -> int:
        return self.topics * self.partitions_per_topic

    @property
    def filter_type(self) -> str:
        expression = self.filter_expression.strip()
        return "TAG" if not expression or TAGS.fullmatch(expression) else "SQL92"

    @property
    def needs_own_broker(self) -> list[str]:
        """List the keys that are for brokers which `rocketpy bench` starts itself."""
        fields = ("broker", "slaves", "tls", "accounts", "cold_reads", "kill_after")
        return [_key_of(field) for field in fields if getattr(self, field)]

    def as_keys(self) -> dict[str, Any]:
        """Return the keys of a scenario file that have this value."""
        return {name: getattr(self, field) for name, field in KEYS.items()}


def _key_of(field: str) -> str:
    spelled = {value: name for name, value in FIELDS_OF_KEYS.items()}
    return spelled.get(field) or re.sub("_(.)", lambda found: found[1].upper(), field)


KEYS = {_key_of(field.name): field.name for field in attrs.fields(Scenario)}
_FIELDS = attrs.fields_dict(Scenario)


@attrs.frozen
class Point:
    """One point of a sweep: its name, empty if there is only one, and its scenario."""

    name: str
    scenario: Scenario


def shipped() -> dict[str, str]:
    """Return the scenario files that come with rocketpy: name and text."""
    files = resources.files("rocketpy.bench") / "scenarios"
    return {
        entry.name.removesuffix(".yaml"): entry.read_text()
        for entry in sorted(files.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".yaml")
    }


def read(source: str) -> list[Point]:
    """Return the points of a file, or of a shipped scenario with that name.

    Raises:
        ConfigError: there is none, or it says what no scenario can.
    """
    known = shipped()
    if source in known:
        return points(parse(known[source], source, is_toml=False), source)
    path = Path(source)
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        names = ", ".join(known)
        raise ConfigError(f"{source}: no scenario file that can be read ({error}); shipped are {names}") from error
    return points(parse(text, source, is_toml=path.suffix == ".toml"), source)


def parse(text: str, source: str, *, is_toml: bool) -> dict[str, Any]:
    """Return the mapping that a file holds. Raises: ConfigError: it holds none."""
    import yaml

    try:
        content = tomllib.loads(text) if is_toml else yaml.safe_load(text)
    except (tomllib.TOMLDecodeError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{source}: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{source}: expected keys and values, as `topics: 1`")
    return content


def points(content: Mapping[str, Any], source: str) -> list[Point]:
    """Return the points of a scenario, in the order of the lists' values. Raises: ConfigError: it is invalid."""
    for name in content:
        if name not in KEYS:
            near = difflib.get_close_matches(str(name), KEYS, n=1)
            raise ConfigError(f"{source}: unknown key {name}{f', did you mean {near[0]}?' if near else ''}")
    content = {"name": Path(source).stem} | dict(content)
    swept = {name: value for name, value in content.items() if isinstance(value, list)}
    found = [_point(content, dict(zip(swept, values, strict=True)), source) for values in _products(swept, source)]
    if len({point.name for point in found}) < len(found):
        raise ConfigError(f"{source}: a list names a value twice")
    return found


def _products(swept: Mapping[str, list[Any]], source: str) -> Iterator[tuple[Any, ...]]:
    count = math.prod(map(len, swept.values()))
    if not 0 < count <= POINTS_MAX:
        raise ConfigError(f"{source}: the lists make {count} points, allowed are 1 to {POINTS_MAX}")
    return itertools.product(*swept.values())


def _point(content: Mapping[str, Any], chosen: Mapping[str, Any], source: str) -> Point:
    values = {KEYS[name]: _value(name, value, source) for name, value in {**content, **chosen}.items()}
    scenario = Scenario(**values)
    _check_relations(scenario, source)
    return Point(", ".join(_named(name, value) for name, value in chosen.items()), scenario)


def _named(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{each}={_property(text)}" for each, text in value.items()) or "default properties"
    return f"{name}={value}"


def _value(name: str, value: Any, source: str) -> Any:
    """Return `value` in the type of its key. Raises: ConfigError: it has another, or lies outside of the range."""
    field = _FIELDS[KEYS[name]]
    kind, low, high = str(field.type), field.metadata.get("low", 0), field.metadata.get("high", 0)
    if name == "broker":
        if not isinstance(value, dict) or not all(isinstance(each, str | int | float) for each in value.values()):
            raise ConfigError(f"{source}: broker is no mapping of properties, as {{flushDiskType: SYNC_FLUSH}}")
        return {str(each): _property(text) for each, text in value.items()}
    if kind in ("str", "bool"):
        if type(value).__name__ != kind:
            raise ConfigError(f"{source}: {name} is {value!r}, expected {KINDS[kind]}")
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not low <= value <= high or (kind == "int" and value != int(value)):
        raise ConfigError(f"{source}: {name} is {value!r}, expected {KINDS[kind]} from {low:g} to {high:g}")
    return int(value) if kind == "int" else value


def _property(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_relations(scenario: Scenario, source: str) -> None:
    """Raise ConfigError for keys that exclude each other."""
    delayed = scenario.delay_level > 0 or scenario.delay_millis > 0
    reads_backlog = scenario.consumer_backlog_size_gb > 0
    excluded = (
        (scenario.queues > QUEUES_MAX, f"topics x partitionsPerTopic exceed {QUEUES_MAX} queues"),
        (scenario.delay_level > 0 < scenario.delay_millis, "delayLevel and delayMillis exclude each other"),
        (scenario.batch_size > 1 and (scenario.transactions or delayed), "a batch has no transactions and no delays"),
        (scenario.transactions and delayed, "transactions and delays exclude each other"),
        (scenario.random_reads and not reads_backlog, "randomReads needs consumerBacklogSizeGB"),
        (scenario.cold_reads and not reads_backlog, "coldReads needs consumerBacklogSizeGB"),
        *_filter_relations(scenario),
        (scenario.accounts and scenario.idle_connections > 0, "idleConnections sign nothing: they need no accounts"),
        (
            scenario.slaves > 0 and (scenario.tls or scenario.accounts),
            "slaves that `rocketpy bench` starts have no tls and no accounts",
        ),
        (reads_backlog and not scenario.subscriptions_per_topic, "consumerBacklogSizeGB needs subscriptionsPerTopic"),
        (delayed and reads_backlog, "consumerBacklogSizeGB and delays exclude each other"),
        (
            scenario.producers_per_topic == 0 and not reads_backlog,
            "without producers there is nothing to measure: set producersPerTopic",
        ),
        (
            scenario.batch_size * scenario.message_size > 4 << 20,
            "a batch of batchSize x messageSize exceeds 4 MiB, the largest request",
        ),
    )
    for is_wrong, reason in excluded:
        if is_wrong:
            raise ConfigError(f"{source}: {reason}")


def _filter_relations(scenario: Scenario) -> list[tuple[bool, str]]:
    is_filtered = bool(scenario.filter_expression)
    return [
        (is_filtered and not scenario.subscriptions_per_topic, "filterExpression needs subscriptionsPerTopic"),
        (is_filtered and scenario.batch_size > 1, "filterExpression and batches exclude each other"),
        (is_filtered and scenario.random_reads, "filterExpression and randomReads exclude each other"),
        (
            is_filtered and scenario.queues > FILTERED_QUEUES_MAX,
            f"filterExpression allows topics x partitionsPerTopic up to {FILTERED_QUEUES_MAX} queues",
        ),
    ]


def changed(point: Point, values: Mapping[str, Any]) -> Point:
    """Return a point with other values of some fields; its name stays."""
    return attrs.evolve(point, scenario=attrs.evolve(point.scenario, **values))


def quick(found: Sequence[Point]) -> list[Point]:
    """Return the last point, so small that it takes a second or a few: it shows that a scenario runs, and measures
    nothing."""
    return [changed(found[-1], _small(found[-1].scenario))]


def _small(scenario: Scenario) -> dict[str, Any]:
    is_late = scenario.delay_level > 0 or scenario.delay_millis > 0
    most = {
        "topics": 2,
        "partitions_per_topic": 8,
        "producers_per_topic": 4,
        "consumer_per_subscription": 4,
        "producer_rate": 500,
        "consumer_backlog_size_gb": 0.01,
        "idle_connections": 200,
        "warmup_duration_minutes": 0.01,
        "test_duration_minutes": 1 if scenario.consumer_backlog_size_gb and not scenario.random_reads else 0.015,
    }
    if is_late:
        most["test_duration_minutes"] = 0.1
    return {name: min(getattr(scenario, name), limit) for name, limit in most.items()}
