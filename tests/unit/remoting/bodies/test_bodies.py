"""All JSON bodies: texts captured from Java brokers and clients, both ways."""

import zlib

import pytest

from rocketpy.codes import LanguageCode, MQVersion
from rocketpy.errors import BodyInvalid
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.bodies import register
from rocketpy.remoting.bodies.broker import BrokerStatsData, QueryConsumeQueueResponseBody
from rocketpy.remoting.bodies.client import (
    CheckClientRequestBody,
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProcessQueueInfo,
    ProducerTableInfo,
    SubscriptionData,
)
from rocketpy.remoting.bodies.group import (
    GetConsumerListByGroupResponseBody,
    GroupList,
    LockBatchRequestBody,
    LockBatchResponseBody,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from rocketpy.remoting.bodies.offset import (
    ConsumerOffsetSerializeWrapper,
    ConsumeStats,
    ConsumeStatsList,
    DelayOffsetSerializeWrapper,
    GetConsumerStatusBody,
    ResetOffsetBody,
)
from rocketpy.remoting.bodies.register import TOPICS_PER_STEP, RegisterBrokerBody
from rocketpy.remoting.bodies.route import ClusterInfo, KVTable, TopicRouteData
from rocketpy.remoting.bodies.schema import (
    LENIENT_BYTES_MAX,
    OBJECTS_MAX,
    REPORT_BYTES_MAX,
    REPORT_OBJECTS_MAX,
    REQUEST_BYTES_MAX,
    Body,
)
from rocketpy.remoting.bodies.topic import (
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicFilterType,
    TopicList,
    TopicOffsets,
    TopicStatsTable,
)
from tests.support.cases import cases
from tests.support.registrations import decode_registration

MQ = '{"brokerName":"broker-a","queueId":0,"topic":"T"}'
TOPIC = (
    '{"order":false,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,'
    '"writeQueueNums":8}'
)
GROUP = (
    '{"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,"groupName":"G",'
    '"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}'
)
SUBSCRIPTION = (
    '{"classFilterMode":false,"codeSet":[2598919],"expressionType":"TAG","subString":"TagA","subVersion":1700000000000,'
    '"tagsSet":["TagA"],"topic":"T"}'
)
VERSION = '{"counter":9,"timestamp":1700000000000}'
STATS = '{"consumeTps":0.0,"offsetTable":{' + MQ + ':{"brokerOffset":9,"consumerOffset":4,"lastTimestamp":1}}}'
STATS_ITEM = '{"avgpt":0.0,"sum":0,"tps":0.25}'

TEXTS: list[tuple[type[Body], str]] = [
    (
        TopicRouteData,
        '{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:4444","1":"127.0.0.1:4446"},"brokerName":"pb","cluster":"PC"}],'
        '"filterServerTable":{},"queueDatas":[{"brokerName":"pb","perm":6,"readQueueNums":4,"topicSysFlag":0,'
        '"writeQueueNums":4}]}',
    ),
    (
        ClusterInfo,
        '{"brokerAddrTable":{"broker-a":{"brokerAddrs":{"0":"127.0.0.1:10911"},"brokerName":"broker-a",'
        '"cluster":"DefaultCluster"}},"clusterAddrTable":{"DefaultCluster":["broker-a"]}}',
    ),
    (KVTable, '{"table":{"k":"v"}}'),
    (DataVersion, VERSION),
    (TopicList, '{"topicList":["a","b"]}'),
    (TopicList, '{"brokerAddr":"127.0.0.1:10911","topicList":["a","b"]}'),
    (TopicConfigSerializeWrapper, '{"dataVersion":' + VERSION + ',"topicConfigTable":{"T":' + TOPIC + "}}"),
    (
        RegisterBrokerBody,
        '{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":'
        + VERSION
        + ',"topicConfigTable":{"T":'
        + TOPIC
        + "}}}",
    ),
    (SubscriptionGroupWrapper, '{"dataVersion":' + VERSION + ',"subscriptionGroupTable":{"G":' + GROUP + "}}"),
    (
        HeartbeatData,
        '{"clientID":"c","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":'
        '"CONSUME_PASSIVELY","groupName":"G","messageModel":"CLUSTERING","subscriptionDataSet":['
        + SUBSCRIPTION
        + '],"unitMode":false}],"producerDataSet":[{"groupName":"CLIENT_INNER_PRODUCER"}]}',
    ),
    (CheckClientRequestBody, '{"clientId":"c","group":"G","subscriptionData":' + SUBSCRIPTION + "}"),
    (
        TopicStatsTable,
        '{"offsetTable":{' + MQ + ':{"lastUpdateTimestamp":1,"maxOffset":2,"minOffset":0}}}',
    ),
    (TopicOffsets, '{"maxOffsets":[2,0],"minOffsets":[0,0]}'),
    (ConsumeStats, STATS),
    (ConsumeStatsList, '{"brokerAddr":"ip:1","consumeStatsList":[{"G":[' + STATS + ']}],"totalDiff":12}'),
    (
        ConsumerConnection,
        '{"connectionSet":[{"clientAddr":"ip:1","clientId":"c","language":"JAVA","version":409}],"consumeFromWhere":'
        '"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","subscriptionTable":'
        '{"T":' + SUBSCRIPTION + "}}",
    ),
    (
        ProducerTableInfo,
        '{"data":{"g":[{"clientId":"c","language":"JAVA","lastUpdateTimestamp":5,"remoteIP":"/ip:1","version":409}]}}',
    ),
    (ConsumerOffsetSerializeWrapper, '{"offsetTable":{"T@G":{0:5,1:6}}}'),
    (DelayOffsetSerializeWrapper, '{"offsetTable":{1:1,3:1}}'),
    (GroupList, '{"groupList":["G1","G2"]}'),
    (GetConsumerListByGroupResponseBody, '{"consumerIdList":["id1","id2"]}'),
    (LockBatchRequestBody, '{"clientId":"c","consumerGroup":"G","mqSet":[' + MQ + "]}"),
    (LockBatchResponseBody, '{"lockOKMQSet":[]}'),
    (
        ConsumerRunningInfo,
        '{"mqTable":{' + MQ + ':{"cachedMsgCount":0,"cachedMsgMaxOffset":0,"cachedMsgMinOffset":0,'
        '"cachedMsgSizeInMiB":0,"commitOffset":7,"droped":true,"lastConsumeTimestamp":0,"lastLockTimestamp":0,'
        '"lastPullTimestamp":0,"locked":false,"transactionMsgCount":0,"transactionMsgMaxOffset":0,'
        '"transactionMsgMinOffset":0,"tryUnlockTimes":0}},"properties":{"PROP_CONSUMEORDERLY":"false"},"statusTable":'
        '{"T":{"consumeFailedMsgs":0,"consumeFailedTPS":0.0,"consumeOKTPS":1.5,"consumeRT":0.0,"pullRT":0.0,'
        '"pullTPS":0.0}},"subscriptionSet":[]}',
    ),
    (
        ConsumeMessageDirectlyResult,
        '{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":1}',
    ),
    (GetConsumerStatusBody, '{"consumerTable":{"c":{' + MQ + ':5}},"messageQueueTable":{}}'),
    (ResetOffsetBody, '{"offsetTable":{' + MQ + ':5,{"brokerName":"broker-a","queueId":1,"topic":"T"}:6}}'),
    (
        BrokerStatsData,
        '{"statsDay":' + STATS_ITEM + ',"statsHour":' + STATS_ITEM + ',"statsMinute":' + STATS_ITEM + "}",
    ),
    (
        QueryConsumeQueueResponseBody,
        '{"filterData":"null","maxQueueIndex":3,"minQueueIndex":0,"queueData":[{"eval":false,"physicOffset":1757,'
        '"physicSize":221,"tagsCode":2598920}]}',
    ),
]


@pytest.mark.parametrize(("kind", "text"), TEXTS, ids=lambda value: value.__name__ if isinstance(value, type) else "")
def test_body_is_read_and_written_as_java_does(kind: type[Body], text: str) -> None:
    body = kind.decode(text.encode())
    assert body.encode().decode() == text


@pytest.mark.parametrize(("kind", "text"), TEXTS, ids=lambda value: value.__name__ if isinstance(value, type) else "")
def test_object_of_unknown_members_and_nulls_is_read(kind: type[Body], text: str) -> None:
    nulls = ",".join(f'"{field.wire}":null' for field, _ in kind.schema())
    assert kind.decode(b'{"unknown":[1,{}],' + nulls.encode() + b"}") == kind.decode(b"{}")


def test_route_of_an_old_name_server_has_unquoted_ids() -> None:
    quoted = TopicRouteData.decode(TEXTS[0][1].encode())
    unquoted = TEXTS[0][1].replace('{"0":', "{0:").replace(',"1":', ",1:")
    assert TopicRouteData.decode(unquoted.encode()) == quoted
    assert quoted.broker_datas[0].broker_addrs == {0: "127.0.0.1:4444", 1: "127.0.0.1:4446"}
    assert quoted.broker_datas[0].master_addr == "127.0.0.1:4444"


def test_queue_keys_may_be_json_in_a_string() -> None:
    """Holds: trap, JSON with whole numbers or objects as keys."""
    escaped = MQ.replace('"', '\\"')
    body = ResetOffsetBody.decode(f'{{"offsetTable":{{"{escaped}":5}}}}'.encode())
    assert body.offset_table == {MessageQueue("T", "broker-a", 0): 5}


def test_go_heartbeat() -> None:
    """Holds: client, contents of a heartbeat."""
    body = HeartbeatData.decode(
        b'{"clientID":"c","producerDataSet":[],"consumerDataSet":[{"groupName":"G","consumeType":"consume_passively",'
        b'"messageModel":"unknown","unitMode":"true","subscriptionDataSet":[{"topic":"T","codeSet":["2598919"],'
        b'"subVersion":1700000000000000000}]}]}'
    )
    consumer = body.consumer_data_set[0]
    assert consumer.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert consumer.message_model is MessageModel.CLUSTERING and consumer.unit_mode
    assert consumer.subscription_data_set == [
        SubscriptionData(topic="T", code_set=[2598919], sub_version=1700000000000000000)
    ]


def test_go_result_is_an_ordinal_and_go_spells_dropped() -> None:
    result = ConsumeMessageDirectlyResult.decode(b'{"consumeResult":4}')
    assert result.consume_result is CMResult.CR_THROW_EXCEPTION
    assert ConsumeMessageDirectlyResult.decode(b'{"consumeResult":99}').consume_result is None
    assert ProcessQueueInfo.decode(b'{"dropped":true}').dropped


def test_defaults_are_those_of_java() -> None:
    assert TopicConfig.decode(b"{}") == TopicConfig(
        perm=6, read_queue_nums=16, write_queue_nums=16, topic_filter_type=TopicFilterType.SINGLE_TAG
    )
    assert SubscriptionGroupConfig.decode(b'{"groupName":"G"}').encode().decode() == GROUP


def test_language_is_a_name() -> None:
    connection = ConsumerConnection.decode(b'{"connectionSet":[{"language":"KLINGON"},{"language":"GO"}]}')
    assert [one.language for one in connection.connection_set] == [None, LanguageCode.GO]


def test_data_version_moves_on() -> None:
    assert DataVersion(counter=1, timestamp_ms=2).next(7) == DataVersion(counter=2, timestamp_ms=7)


def test_unread_messages_are_summed() -> None:
    assert ConsumeStats.decode(STATS.encode()).total_diff == 5


INFLATED_REGISTRATION = (
    bytes.fromhex("00000027")
    + b'{"counter":0,"timestamp":1795161004916}'
    + bytes.fromhex("00000002")
    + bytes.fromhex("00000014")
    + b"T 16 16 6 SINGLE_TAG"
    + bytes.fromhex("00000013")
    + b"T2 1 2 6 SINGLE_TAG"
    + bytes.fromhex("00000002")
    + b"[]"
)


def decode_compressed(data: bytes) -> RegisterBrokerBody:
    return decode_registration(data, compressed=True, version=409)


def test_compressed_registration_is_read_and_written_as_java_does() -> None:
    """Holds: name server, contents of a registration."""
    body = decode_compressed(zlib.compress(INFLATED_REGISTRATION, 9))
    wrapper = body.topic_config_serialize_wrapper
    assert wrapper.data_version == DataVersion(counter=0, timestamp_ms=1795161004916)
    assert wrapper.topic_config_table["T2"] == TopicConfig(topic_name="T2", read_queue_nums=1, write_queue_nums=2)
    assert zlib.decompress(body.encode_compressed()) == INFLATED_REGISTRATION


@cases("size", range(0, len(INFLATED_REGISTRATION), 3))
def test_truncated_registration_is_refused(size: int) -> None:
    with pytest.raises(BodyInvalid):
        decode_compressed(zlib.compress(INFLATED_REGISTRATION[:size]))
    compressed = zlib.compress(INFLATED_REGISTRATION)
    with pytest.raises(BodyInvalid):
        decode_compressed(compressed[: size % len(compressed)])


def test_registration_by_version() -> None:
    wrapper = b'{"topicConfigTable":{"T":' + TOPIC.encode() + b"}}"
    old = decode_registration(wrapper, compressed=False, version=36)
    assert list(old.topic_config_serialize_wrapper.topic_config_table) == ["T"]
    assert decode_registration(None, compressed=True, version=409) == RegisterBrokerBody()
    plain = decode_registration(old.encode(), compressed=False, version=409)
    packed = decode_registration(old.encode_compressed(), compressed=True, version=409)
    assert plain == packed == old


@cases(
    "data",
    [
        None,
        b"[]",
        b"1",
        b'{"topic":{}}',
        b'{"codeSet":5}',
        b'{"codeSet":["x"]}',
        b'{"codeSet":[4294967296]}',
        b'{"subVersion":1.5}',
        b'{"subVersion":true0}',
        b'{"classFilterMode":[]}',
        b'{"tagsSet":[[]]}',
        b'{"subVersion":99999999999999999999}',
    ],
)
def test_members_of_the_wrong_type_are_refused(data: bytes | None) -> None:
    with pytest.raises(BodyInvalid):
        SubscriptionData.decode(data)


def test_wrong_members_are_named() -> None:
    with pytest.raises(BodyInvalid, match=r"HeartbeatData.consumerDataSet: ConsumerData.consumeType"):
        HeartbeatData.decode(b'{"consumerDataSet":[{"consumeType":[]}]}')
    assert ConsumerData.decode(b'{"groupName":12}').group_name == "12"


def large_table(topics: int) -> RegisterBrokerBody:
    table = {f"T{number}": TopicConfig(topic_name=f"T{number}", perm=number % 8) for number in range(topics)}
    wrapper = TopicConfigSerializeWrapper(data_version=DataVersion(counter=3), topic_config_table=table)
    return RegisterBrokerBody(filter_server_list=["f"], topic_config_serialize_wrapper=wrapper)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_large_registration_is_read_in_steps(compressed: bool) -> None:
    body = large_table(5_000)
    data = body.encode_compressed() if compressed else body.encode()
    work = RegisterBrokerBody.reading(data, compressed=compressed, version=409)
    steps = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            found = end.value
            break
        steps += 1
    assert steps >= 5_000 / TOPICS_PER_STEP
    wrapper = found.topic_config_serialize_wrapper
    assert wrapper.topic_config_table == body.topic_config_serialize_wrapper.topic_config_table
    assert wrapper.data_version == DataVersion(counter=3)
    assert found.filter_server_list == ["f"]


def test_one_topic_again_and_again_is_read_in_steps_too() -> None:
    entry = b'"T":{"topicName":"T"},'
    data = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{' + entry * 5_000 + b'"U":null}}}'
    assert sum(1 for _ in RegisterBrokerBody.reading(data, compressed=False, version=409)) >= 5_000 / TOPICS_PER_STEP


def test_an_old_brokers_large_table() -> None:
    wrapper = large_table(1_000).topic_config_serialize_wrapper
    found = decode_registration(wrapper.encode(), compressed=False, version=10)
    assert found.topic_config_serialize_wrapper.topic_config_table == wrapper.topic_config_table


def test_a_large_registration_that_is_no_json_is_refused() -> None:
    data = large_table(1_000).encode()
    for damaged in (data[:-1], data + b"x", data.replace(b'"T500"', b"T500"), data.replace(b'"perm":4', b'"perm":"x"')):
        with pytest.raises(BodyInvalid):
            decode_registration(damaged, compressed=False, version=409)


def test_the_number_of_topics_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register, "TOPICS_MAX", 999)
    body = large_table(1_000)
    for data, compressed in ((body.encode(), False), (body.encode_compressed(), True)):
        with pytest.raises(BodyInvalid, match="at most 999"):
            decode_registration(data, compressed=compressed, version=409)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b" " * (REQUEST_BYTES_MAX + 1), "bytes, at most"),
        (b'{"consumerDataSet":[' + b"{}," * OBJECTS_MAX + b"{}]}", "objects, at most"),
        (b"{clientID:'" + b"a" * LENIENT_BYTES_MAX + b"'}", "not JSON"),
    ],
    ids=["bytes", "objects", "lenient"],
)
def test_what_anybody_sends_is_not_read_when_it_would_take_long(text: bytes, why: str) -> None:
    with pytest.raises(BodyInvalid, match=why):
        HeartbeatData.decode_request(text)


def test_what_anybody_sends_is_read_as_any_body_within_the_bounds() -> None:
    with pytest.raises(BodyInvalid, match="missing"):
        HeartbeatData.decode_request(None)
    assert HeartbeatData.decode_request(b"{clientID:'a'}").client_id == "a"
    text = b'{"clientID":"' + b"a" * (LENIENT_BYTES_MAX + 1) + b'"}'
    assert len(HeartbeatData.decode_request(text).client_id) == LENIENT_BYTES_MAX + 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b" " * (REPORT_BYTES_MAX + 1), "bytes, at most"),
        (b'{"subscriptionSet":[' + b"{}," * REPORT_OBJECTS_MAX + b"{}]}", "objects, at most"),
    ],
    ids=["bytes", "objects"],
)
def test_what_a_consumer_tells_of_itself_is_bounded(text: bytes, why: str) -> None:
    with pytest.raises(BodyInvalid, match=why):
        ConsumerRunningInfo.decode_report(text)


def test_the_queues_of_a_large_consumer_are_read() -> None:
    count = 20_000
    queues = {MessageQueue("T", "broker-a", number): ProcessQueueInfo() for number in range(count)}
    info = ConsumerRunningInfo(mq_table=queues, jstack="at com.example.Handler\n" * 50_000)
    assert len(ConsumerRunningInfo.decode_report(info.encode()).mq_table) == count


def test_members_that_nobody_knows_are_steps_of_their_own() -> None:
    data = b'{"x":1' + b',"y":[' + b"0," * register.SMALL_BYTES + b"0]" + b',"z":1}'
    assert len(list(RegisterBrokerBody.reading(data, compressed=False, version=MQVersion.V4_9_4))) == 3
