"""`--output json` of every command: each line is an object, with the names that json_rows.py promises to scripts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from rocketpy.admin.base import EXIT_PARTIAL
from rocketpy.admin.cli import main
from rocketpy.admin.commands import REGISTRY, failover
from rocketpy.admin.json_rows import JSON_ROWS
from rocketpy.codes import LanguageCode, RequestCode, ResponseCode
from rocketpy.message.trace import Pub, SubAfter
from rocketpy.remoting.bodies.acl import AclConfig, PlainAccessConfig
from rocketpy.remoting.bodies.broker import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeQueueData,
    FollowedMaster,
    HaStatus,
    QueryConsumeQueueResponseBody,
    SlaveConnection,
)
from rocketpy.remoting.bodies.client import (
    Connection,
    ConsumeMessageDirectlyResult,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from rocketpy.remoting.bodies.group import GroupList, SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketpy.remoting.bodies.offset import ConsumeStats, ConsumeStatsList, OffsetWrapper, ResetOffsetBody
from rocketpy.remoting.bodies.route import KVTable
from rocketpy.remoting.bodies.topic import (
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.acl import GetBrokerAclConfigResponseHeader
from rocketpy.remoting.headers.namesrv import (
    AddWritePermOfBrokerResponseHeader,
    GetKVConfigResponseHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from tests.support.admin import QUEUE, Mqadmin, with_group
from tests.support.cases import cases
from tests.support.cluster import FakeBroker, FakeCluster, no

MASTER = "10.0.0.1:10911"
AT_MS = 1709288551127
LINES = """
updateTopic -b {master} -t T
deleteTopic -t T -c DefaultCluster
updateTopicPerm -b {master} -t T -p 4
topicRoute -t T
topicRoute -t T -l
topicStatus -t T
topicClusterList -t T
topicList
topicList -c
updateOrderConf -t T -m get
allocateMQ -t T -i a,b
statsAll
queryMsgById -i {id}
queryMsgById -i {id} --print-body
queryMsgById -i {id} -s true
queryMsgById -i {id} -g g -d c
queryMsgByKey -t T -k k1
queryMsgByUniqueKey -t T -i AA
queryMsgByUniqueKey -t T -i AA -g g -d c
queryMsgByOffset -t T -b broker-a -i 0 -o 0
printMsg -t T
printMsgByQueue -t T -a broker-a -i 0 -p true -d true -f true
consumeMessage -t T
queryCq -t T -q 0 -i 0
queryMsgTraceById -i ID
sendMessage -t T -p x
sendMsgStatus -b broker-a -c 1
checkMsgSendRT -t T -a 2
clusterRT -a 1 --rounds 1
clusterRT -a 1 --rounds 1 -p true
updateSubGroup -b {master} -g g
deleteSubGroup -c DefaultCluster -g g
getConsumerConfig -g g
consumerConnection -g g
producerConnection -g pg -t T
producer -b {master}
consumerProgress
consumerProgress -g g
consumerProgress -g g -s true
consumerStatus -g g
consumerStatus -g g -i c
brokerConsumeStats -b {master}
startMonitoring --rounds 1
resetOffsetByTime -g g -t T -s now
resetOffsetByTime -g offline -t T -s now
skipAccumulatedMessage -g g -t T
skipAccumulatedMessage -g offline -t T
cloneGroupOffset -s g -d g2 -t T
clusterList
clusterList -m
brokerStatus -b {master}
getBrokerConfig -b {master}
updateBrokerConfig -b {master} -k fileReservedTime -v 1
cleanExpiredCQ -b {master}
cleanUnusedTopic -b {master}
deleteExpiredCommitLog -b {master}
timerStatus -b {master}
updateKvConfig -s a -k b -v c
deleteKvConfig -s a -k b
getNamesrvConfig
updateNamesrvConfig -k orderMessageEnable -v true
wipeWritePerm -b broker-a
drainBroker -b broker-a --wait --wait-seconds 0 --route-seconds 0
addWritePerm -b broker-a
exportMetadata -c DefaultCluster -f {directory}
exportConfigs -c DefaultCluster -f {directory}
exportMetrics -c DefaultCluster -f {directory}
haStatus -b broker-a
haStatus -f file
switchMaster -f file -t a
haElect -f file -t a --unclean --yes
haConfigure -f {configuration}
updateAclConfig -b {master} -a account -s 12345678
deleteAclConfig -b {master} -a account
getAclConfig -b {master}
clusterAclConfigVersion -b {master}
updateGlobalWhiteAddr -b {master} -g 10.0.0.*
"""


@attrs.frozen
class Kind:
    """One kind of rows of a command."""

    required: frozenset[str]
    optional: frozenset[str]
    is_open: bool

    @classmethod
    def parse(cls, text: str) -> Kind:
        words = text.split()
        optional = {word.strip("[]") for word in words if word.startswith("[")}
        return cls(frozenset(words) - {"...", *(f"[{word}]" for word in optional)}, frozenset(optional), "..." in words)

    def fits(self, row: dict[str, object]) -> bool:
        return self.required <= set(row) and (self.is_open or set(row) <= self.required | self.optional)


def everything(cluster: FakeCluster) -> None:
    """A cluster in which every command has something to tell."""
    broker = with_group(cluster)
    broker.now_ms = lambda: AT_MS
    broker.topics |= {"broker-a": 1, "%RETRY%offline": 1, "RMQ_SYS_TRACE_TOPIC": 1}
    broker.store("T", 0, b"first", b"UNIQ_KEY\x01AA\x02KEYS\x01k1\x02TAGS\x01A")
    broker.store("T", 0, b"\xff", b"UNIQ_KEY\x01BB")
    sent = Pub(AT_MS, "R", "pg", "T", "ID", "A", "k", MASTER, 5, 12, 0, "OFF", True).encode()
    consumed = SubAfter("Q", "ID", 3, True, "k", 0, AT_MS, "g").encode()
    broker.store("RMQ_SYS_TRACE_TOPIC", 0, (sent + consumed).encode(), b"KEYS\x01ID\x02UNIQ_KEY\x01T1")
    settings_and_figures(broker)
    groups_and_offsets(broker)
    name_server(cluster)


def settings_and_figures(broker: FakeBroker) -> None:
    topics = {"T": TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2, perm=6)}
    broker.answer(RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigSerializeWrapper(topic_config_table=topics))
    broker.answer(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, TopicList(topic_list=[]))
    stats = TopicStatsTable(offset_table={QUEUE: TopicOffset(max_offset=2, last_update_timestamp_ms=AT_MS)})
    broker.answer(RequestCode.GET_TOPIC_STATS_INFO, stats)
    broker.answer(RequestCode.VIEW_BROKER_STATS_DATA, BrokerStatsData(stats_minute=BrokerStatsItem(sum=30, tps=0.5)))
    broker.answer(RequestCode.GET_BROKER_RUNTIME_INFO, KVTable(table={"putTps": "1.0 1.0"}))
    broker.answer(RequestCode.GET_BROKER_CONFIG, b"brokerName=broker-a\nfileReservedTime=72\n")
    entries = QueryConsumeQueueResponseBody(max_queue_index=2, queue_data=[ConsumeQueueData(physic_offset=3)])
    broker.answer(RequestCode.QUERY_CONSUME_QUEUE, entries)
    slave = SlaveConnection(addr="10.0.0.2:4", state="replicating", slave_ack_offset=4, diff=1, lag_ms=12, in_sync=True)
    followed = FollowedMaster(activated=True, master_addr="10.0.0.9:1")
    ha = HaStatus(master=True, role="SYNC_MASTER", ha_connection_info=[slave], ha_client_runtime_info=followed)
    broker.answer(RequestCode.GET_BROKER_HA_STATUS, ha)
    accounts = [PlainAccessConfig(access_key="account")]
    broker.answer(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, AclConfig(plain_access_configs=accounts))
    versions = GetBrokerAclConfigResponseHeader(
        broker_name="broker-a",
        broker_addr=MASTER,
        cluster_name="DefaultCluster",
        version="{}",
        all_acl_file_version='{"/conf/plain_acl.yml":{"counter":1,"timestamp":5}}',
    )
    broker.answers[RequestCode.GET_BROKER_CLUSTER_ACL_INFO] = lambda *_: RemotingCommand.response(header=versions)
    for code in (
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    ):
        broker.answer(code)


def groups_and_offsets(broker: FakeBroker) -> None:
    broker.answer(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, GroupList(group_list=["g"]))
    broker.answer(RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyResult(spent_time_ms=7))
    table = {"g": SubscriptionGroupConfig(group_name="g")}
    groups = SubscriptionGroupWrapper(subscription_group_table=table)
    broker.answer(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, groups)
    member = Connection(client_id="c", client_addr="a:1", language=LanguageCode.JAVA, version=398)
    broker.answer(RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerConnection(connection_set=[member]))
    producer = ProducerInfo(client_id="c", remote_ip="/a:1", language=LanguageCode.GO, version=317)
    broker.answer(RequestCode.GET_ALL_PRODUCER_INFO, ProducerTableInfo(data={"pg": [producer]}))
    stats = ConsumeStats(offset_table={QUEUE: OffsetWrapper(broker_offset=9, consumer_offset=2)})
    broker.answer(RequestCode.GET_BROKER_CONSUME_STATS, ConsumeStatsList(consume_stats_list=[{"g": [stats]}]))

    def reset(request: RemotingCommand, channel: object) -> RemotingCommand:
        if request.ext_field("group") == "offline":
            return no(ResponseCode.CONSUMER_NOT_ONLINE)
        return RemotingCommand.response(body=ResetOffsetBody(offset_table={QUEUE: 7}).encode())

    broker.answers[RequestCode.INVOKE_BROKER_TO_RESET_OFFSET] = reset


def name_server(cluster: FakeCluster) -> None:
    server = cluster.name_server
    server.answer(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, TopicList(topic_list=["T", "%RETRY%g"]))
    server.answer(RequestCode.GET_NAMESRV_CONFIG, b"orderMessageEnable=false\n")
    headers = {
        RequestCode.WIPE_WRITE_PERM_OF_BROKER: WipeWritePermOfBrokerResponseHeader(wipe_topic_count=5),
        RequestCode.ADD_WRITE_PERM_OF_BROKER: AddWritePermOfBrokerResponseHeader(add_topic_count=6),
        RequestCode.GET_KV_CONFIG: GetKVConfigResponseHeader(value="broker-a:4"),
    }
    for code, header in headers.items():
        server.answers[code] = lambda *_, header=header: RemotingCommand.response(header=header)
    for code in (
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.UPDATE_NAMESRV_CONFIG,
    ):
        server.answer(code)


@pytest.fixture
def group_in_etcd(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group of one member, without etcd."""
    pytest.importorskip("httpcore")
    from rocketpy.failover.etcd import operator
    from rocketpy.failover.rules.records import GroupConfig, GroupState, MasterRecord, MemberRecord
    from rocketpy.failover.rules.requests import View

    record = MemberRecord(address=MASTER, ha_address="", broker_id=0, incarnation="i", epoch=1, end=5, lease=1)
    config = GroupConfig(format=1, mode="sync", file_size=1, members=("a",))
    state = GroupState(epoch=1, master="a", in_sync={"a": "i"})
    master = MasterRecord(member="a", epoch=1, lease=1)
    view = View(revision=1, config=config, state=state, master=master, members={"a": record})

    async def answer(value: object) -> Any:
        return value

    gateway = SimpleNamespace(seconds_left=lambda lease: answer(7))
    keys = SimpleNamespace(read=lambda: answer(view), gateway=gateway)

    @asynccontextmanager
    async def opened_group(*_: object) -> AsyncIterator[object]:
        yield keys

    monkeypatch.setattr(failover, "opened_group", opened_group)
    monkeypatch.setattr(operator, "switch_master", lambda keys, member: answer((state, state)))
    monkeypatch.setattr(operator, "unclean_election", lambda view, member: None)
    monkeypatch.setattr(operator, "elect", lambda keys, election: answer(state))
    monkeypatch.setattr(operator, "configure", lambda keys, wanted: answer((config, config)))


@cases("name", REGISTRY)
def test_json_has_the_promised_names(
    name: str, mqadmin: Mqadmin, group_in_etcd: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # consumerStatus writes there
    configuration = tmp_path / "broker.conf"
    configuration.write_text(
        "brokerId=1\nbrokerRole=SYNC_MASTER\nhaMode=automatic\nhaMember=a\nhaMembers=a\nhaEtcdAddresses=http://127.0.0.1:1\n"
    )
    kinds = [Kind.parse(text) for text in JSON_ROWS[name].split("|")]
    seen: set[int] = set()
    for line in LINES.splitlines():
        if line.split()[:1] != [name]:
            continue
        values = {"master": MASTER, "id": "0A00000100002A9F0000000000000000", "directory": tmp_path}
        words = line.format(**values, configuration=configuration).split()
        status = EXIT_PARTIAL if "--wait" in words else 0  # of drainBroker, whose groups have unread messages
        for row in map(json.loads, mqadmin(*words, "--output", "json", script=everything, status=status)):
            assert isinstance(row, dict)
            fitting = [number for number, kind in enumerate(kinds) if kind.fits(row)]
            assert fitting, f"{line}: json_rows.py has no row {sorted(row)}"
            seen.update(fitting)
    assert seen == set(range(len(kinds))), f"no line of this test prints these rows of {name}"


def test_every_command_promises_rows_and_help_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(JSON_ROWS) == set(REGISTRY) == {line.split()[0] for line in LINES.splitlines() if line}
    assert main(["help", "topicStatus"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Rows of --output json: {broker_name, qid, min_offset, max_offset, last_updated}" in shown
