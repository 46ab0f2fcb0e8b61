"""Options of the source rocketmq, and what each wrong combination says."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from rocketpy.client.options import TlsOptions
from rocketpy.errors import ConfigError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.signature import Credentials
from rocketpy.spark.options import OF_SPARK, parse_options
from rocketpy.spark.ranges import check_order, matching
from rocketpy.spark.topic_options import TopicOptions

BASE = {"nameserver": "n:9876"}


def options(**given: str) -> TopicOptions:
    return parse_options(TopicOptions, {**BASE, **given}, ignored=OF_SPARK)


def test_what_is_read() -> None:
    assert options(topic="T").topics == {"T"}
    assert options(subscribe="T, U").topics == {"T", "U"}
    assert options(subscribePattern="T.*").topics is None
    assigned = options(assign='{"T": {"b": [0, 1]}}')
    assert assigned.topics == {"T"} and assigned.assign == {MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)}
    assert options(topic="T", pushdown="off") == options(topic="T")
    assert options(topic="T").store_path_of("b") is None
    assert options(topic="T", storePath="file:///s").store_path_of("b") == Path("/s")
    each = options(topic="T", storePath='{"b": "/s/b"}')
    assert (each.store_path_of("b"), each.store_path_of("c")) == (Path("/s/b"), None)
    assert options(topic="T", subExpression="a || b").selection.tags == {"a", "b"}
    conditional = options(topic="T", subExpression="a = 1", expressionType="sql92").selection
    assert (conditional.tags, conditional.condition) == (frozenset(), "a = 1")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "exactly one of topic, subscribe, subscribePattern and assign is needed"),
        ({"topic": "T", "subscribe": "U"}, "exactly one of topic"),
        ({"topics": "T"}, 'topics: unknown option; did you mean "topic"?'),
        ({"topic": "T", "startingOffsets": "newest"}, 'startingOffsets: "newest" is no JSON'),
        ({"topic": "T", "startingOffsets": '{"T": {"b": {"0": -3}}}'}, "has -3 for queue 0 of T.b, which is no offset"),
        (
            {"topic": "T", "startingTimestamp": "2", "endingTimestamp": "1"},
            "startingTimestamp: must not be after endingTimestamp",
        ),
        ({"topic": "T", "endingOffsets": "earliest"}, "endingOffsets: must be latest, or JSON without -2"),
        ({"topic": "T", "endingOffsets": '{"T": {"b": {"0": -2}}}'}, "endingOffsets: must be latest, or JSON"),
        ({"topic": "T", "startingOffsets": "group"}, "consumerGroup: is needed for"),
        ({"topic": "T", "commitToGroup": "true"}, "consumerGroup: is needed for"),
        ({"topic": "T", "minPartitions": "9", "maxPartitions": "3"}, "minPartitions: must not be above maxPartitions"),
        ({"topic": "T", "subExpression": "||"}, 'subExpression: "||" holds no tag'),
        ({"topic": "T", "expressionType": "SQL92", "subExpression": "a >"}, "subExpression: is no SQL92 condition: "),
        ({"subscribePattern": "("}, 'subscribePattern: "(" is no regular expression'),
        ({"topic": "T", "tlsCaFile": "/ca"}, "tlsCaFile: has no effect without tls"),
        ({"topic": "T", "tls": "false", "tlsVerify": "false"}, "tlsVerify: has no effect without tls"),
        ({"topic": "T", "tls": "true", "tlsKeyFile": "/key"}, "tlsKeyFile: needs tlsCertFile, too"),
        ({"topic": "T", "namespace": "n%T"}, 'namespace: "n%T" is no namespace: expected are letters, digits'),
        ({"topic": "T", "nameServer": "host"}, 'nameServer: "host" is no list of name servers: write host:port'),
        ({"topic": "T", "storePath": '{"b": 1}'}, "must name a directory for each broker"),
        ({"topic": "T", "storePath": "{"}, "is no JSON"),
        ({"topic": "T", "pushdown": "on"}, "pushdown: filters are not pushed down"),
        (
            {"topic": "T", "startingTimestamp": "1", "startingOffsetsByTimestamp": '{"T": {"b": {"0": 1}}}'},
            "startingTimestamp: excludes startingOffsetsByTimestamp",
        ),
    ],
)
def test_errors_name_the_option(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        options(**given)
    with pytest.raises(ConfigError, match="nameServer: this option is required"):
        parse_options(TopicOptions, {"topic": "T"})


def test_a_query_does_not_end_before_it_starts() -> None:
    """Fault: startingOffsets beyond endingOffsets gave no rows instead of an error."""
    queue = MessageQueue("T", "b", 0)
    ends = {"endingOffsets": '{"T": {"b": {"0": 5}}}'}
    for start in ('{"T": {"b": {"0": 6}}}', "latest"):
        given = options(topic="T", startingOffsets=start, **ends)
        with pytest.raises(ConfigError, match="startingOffsets: queue 0 of topic T on b would be read from offset 6"):
            check_order(given, {queue: 6}, {queue: 5})
    check_order(options(topic="T", startingOffsets='{"T": {"b": {"0": 5}}}', **ends), {queue: 5}, {queue: 5})
    check_order(options(topic="T", **ends), {queue: 6}, {queue: 5})  # retention has deleted them
    check_order(options(topic="T", startingOffsets="latest"), {queue: 6}, {queue: 5})


def test_tls() -> None:
    assert options(topic="T").client_options().tls is None
    assert options(topic="T", tls="true").client_options().tls == TlsOptions()
    files = {"tlsCaFile": "/ca", "tlsCertFile": "file:///cert", "tlsKeyFile": "/key"}
    given = options(topic="T", tls="true", tlsVerify="false", **files).client_options().tls
    wanted = TlsOptions(ca_file=Path("/ca"), certificate_file=Path("/cert"), key_file=Path("/key"), verify=False)
    assert given == wanted


def test_a_namespace_is_before_all_topics_and_groups() -> None:
    offsets = '{"T": {"b": {"0": 1}}}'
    given = options(namespace="n", assign='{"T": {"b": [0]}}', startingOffsets=offsets, consumerGroup="g")
    queue = MessageQueue("n%T", "b", 0)
    assert (given.topics, given.assign, given.starting, given.consumer_group) == ({"n%T"}, {queue}, {queue: 1}, "n%g")
    assert options(namespace="n", subscribe="T, n%U").topics == {"n%T", "n%U"}
    assert given.shown(["T", "n%T", "n%U", "other%T", "TBW102"]) == ["T", "U", "TBW102"]
    assert given.client_options().namespace == "n"
    assert options(topic="T").shown(["T", "n%T"]) == ["T", "n%T"]


def test_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert options(topic="T").client_options().credentials is None
    given = options(topic="T", accessKey="a", secretKey="s3cret")
    assert given.client_options().credentials == Credentials("a", "s3cret")
    assert "s3cret" not in repr(given)
    file = tmp_path / "keys"
    file.write_text("# of the data team\naccessKey = f\nsecretKey=g=h\n")
    by_file = options(topic="T", credentialsFile=str(file))
    assert by_file.client_options().credentials == Credentials("f", "g=h")
    assert b"g=h" not in pickle.dumps(by_file)
    monkeypatch.setenv("MQ_ACCESS_KEY", "e")
    with pytest.raises(ConfigError, match="MQ_SECRET_KEY: is missing"):
        options(topic="T", credentialsEnv="MQ").client_options()
    monkeypatch.setenv("MQ_SECRET_KEY", "k")
    assert options(topic="T", credentialsEnv="MQ").client_options().credentials == Credentials("e", "k")
    file.write_bytes(b"accessKey=\xff\xfe s3cret")
    with pytest.raises(ConfigError, match=f"credentialsFile {file}: is no text in UTF-8") as caught:
        by_file.client_options()
    assert "s3cret" not in str(caught.value)
    with pytest.raises(ConfigError, match="credentials come from"):
        options(topic="T", credentialsEnv="MQ", accessKey="a").client_options()
    with pytest.raises(ConfigError, match=f"credentialsFile {tmp_path / 'none'}: cannot be read on this machine"):
        options(topic="T", credentialsFile=str(tmp_path / "none")).client_options()


def test_a_pattern_takes_special_topics_by_name_alone() -> None:
    topics = ["Order", "Orders", "%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX", "rmq_sys_TRACE_DATA_eu"]
    assert matching(re.compile("Order.*"), topics) == {"Order", "Orders"}
    assert matching(re.compile(".*"), topics) == {"Order", "Orders"}
    assert matching(re.compile("Order|%RETRY%g"), topics) == {"Order", "%RETRY%g"}
