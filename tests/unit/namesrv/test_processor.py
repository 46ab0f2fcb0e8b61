"""Every code of the name server, asked as clients, brokers and mqadmin ask it."""

import json
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.config import Machine, load_namesrv_config
from rocketpy.errors import BodyInvalid, ConfigError, RequestRefused
from rocketpy.namesrv.admission import CLUSTERS_MAX, FILTER_SERVERS_MAX
from rocketpy.namesrv.kv_config import KVConfigManager
from rocketpy.namesrv.processor import NamesrvProcessor
from rocketpy.namesrv.route_info import RouteInfoManager
from rocketpy.remoting.abc import Peer
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.work import result_of

# A registration as a 4.9 broker sends it with compressedRegister=true, after inflation.
COMPRESSED_BLOCKS = (
    b'\x00\x00\x00\x27{"counter":0,"timestamp":1795161004916}'
    b"\x00\x00\x00\x02"
    b"\x00\x00\x00\x14T 16 16 6 SINGLE_TAG"
    b"\x00\x00\x00\x13T2 1 2 6 SINGLE_TAG"
    b"\x00\x00\x00\x02[]"
)
ROUTE = (
    '{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:4444","1":"127.0.0.1:4446"},"brokerName":"pb","cluster":"PC"}],'
    '"filterServerTable":{},"queueDatas":[{"brokerName":"pb","perm":6,"readQueueNums":4,"topicSysFlag":0,'
    '"writeQueueNums":4}]}'
)
ROUTE_BARE = ROUTE.replace('{"0":', "{0:").replace(',"1":', ",1:")


class FakeChannel:
    """A connection that only has a number."""

    def __init__(self, connection: int) -> None:
        self.connection = connection
        self.peer = Peer("127.0.0.1", 50_000 + connection)
        self.is_vip = False
        self.is_writable = True

    def push(self, command: RemotingCommand) -> None:
        raise AssertionError("the name server pushes nothing")

    async def invoke(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        raise AssertionError("the name server asks nothing")

    def close(self) -> None:
        raise AssertionError("the processor closes nothing")


class Asker:
    """A name server's processor, asked one request at a time."""

    def __init__(self, directory: Path, text: str = "") -> None:
        self.path = directory / "namesrv.conf"
        self.path.write_text(text)
        settings = load_namesrv_config(
            self.path, {"kvConfigPath": str(directory / "kv.json")}, {}, machine=Machine(2, "h", lambda: "")
        )
        self.now_ms = 0
        self.routes = RouteInfoManager()
        kv = KVConfigManager.load(Path(settings.namesrv.kv_config_path))
        self.processor = NamesrvProcessor(settings, self.routes, kv, lambda: self.now_ms)

    def ask(
        self,
        code: int,
        ext_fields: dict[str, str] | None = None,
        body: bytes | None = None,
        *,
        version: int = 409,
        connection: int = 1,
    ) -> RemotingCommand:
        request = RemotingCommand.request(code, body=body, ext_fields=ext_fields)
        request.version = version
        response = trio.run(self.processor.process, request, FakeChannel(connection))
        assert response is not None
        return response

    def register(
        self, topics: dict[str, dict[str, object]] | None = None, broker_id: int = 0, addr: str = "127.0.0.1:4444"
    ) -> RemotingCommand:
        topics = topics or {}
        body = {
            "filterServerList": [],
            "topicConfigSerializeWrapper": {
                "dataVersion": {"counter": len(topics), "timestamp": 1_700_000_000_000},
                "topicConfigTable": {name: {"topicName": name, **config} for name, config in topics.items()},
            },
        }
        fields = registration_fields(brokerId=str(broker_id), brokerAddr=addr)
        return self.ask(RequestCode.REGISTER_BROKER, fields, json.dumps(body).encode(), connection=broker_id + 1)


FOUR_QUEUES: dict[str, object] = {"perm": 6, "readQueueNums": 4, "writeQueueNums": 4}


def registration_fields(**changes: str) -> dict[str, str]:
    return {
        "brokerName": "pb",
        "brokerAddr": "127.0.0.1:4444",
        "clusterName": "PC",
        "haServerAddr": "127.0.0.1:4445",
        "brokerId": "0",
        "compressed": "false",
        "bodyCrc32": "0",
    } | changes


@pytest.fixture
def asker(tmp_path: Path) -> Asker:
    return Asker(tmp_path)


def text(response: RemotingCommand) -> str:
    assert response.code == ResponseCode.SUCCESS
    return (response.body or b"").decode()


# --- routes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "fields", "expected"),
    [
        (409, {}, ROUTE),
        (401, {}, ROUTE),
        (479, {"acceptStandardJsonOnly": "true"}, ROUTE),
        (317, {"acceptStandardJsonOnly": "true"}, ROUTE),
        (400, {}, ROUTE_BARE),
        (317, {"acceptStandardJsonOnly": "false"}, ROUTE_BARE),
    ],
)
def test_a_route_byte_for_byte(asker: Asker, version: int, fields: dict[str, str], expected: str) -> None:
    asker.register({"T": FOUR_QUEUES})
    asker.register(broker_id=1, addr="127.0.0.1:4446")
    response = asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"} | fields, version=version)
    assert text(response) == expected


def test_no_route(asker: Asker) -> None:
    response = asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
    assert (response.code, response.body) == (17, None)
    assert response.remark == (
        "No topic route info in name server for the topic: T"
        "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
    )


@pytest.mark.parametrize(("enabled", "expected"), [("true", "pb:4"), ("false", None)])
def test_the_order_configuration_is_part_of_a_route_when_enabled(
    tmp_path: Path, enabled: str, expected: str | None
) -> None:
    asker = Asker(tmp_path, f"orderMessageEnable={enabled}")
    asker.register({"T": FOUR_QUEUES})
    asker.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "pb:4"})
    route = json.loads(text(asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})))
    assert route.get("orderTopicConf") == expected


def test_cluster_info(asker: Asker) -> None:
    asker.register({"T": FOUR_QUEUES})
    assert text(asker.ask(RequestCode.GET_BROKER_CLUSTER_INFO)) == (
        '{"brokerAddrTable":{"pb":{"brokerAddrs":{"0":"127.0.0.1:4444"},"brokerName":"pb","cluster":"PC"}},'
        '"clusterAddrTable":{"PC":["pb"]}}'
    )


# --- registration -----------------------------------------------------------------------------------------------------


def test_a_compressed_registration(asker: Asker) -> None:
    body = zlib.compress(COMPRESSED_BLOCKS, 9)
    fields = registration_fields(compressed="true", bodyCrc32=str(zlib.crc32(body) & 0x7FFFFFFF))
    response = asker.ask(RequestCode.REGISTER_BROKER, fields, body)
    assert (response.code, response.ext_fields, response.body) == (0, {}, None)
    route = asker.routes.route("T2")
    assert route is not None
    assert (route.queue_datas[0].read_queue_nums, route.queue_datas[0].write_queue_nums) == (1, 2)
    assert sorted(result_of(asker.routes.topics())) == ["T", "T2"]


def test_a_wrong_checksum(asker: Asker) -> None:
    with pytest.raises(RequestRefused, match="crc32 not match") as caught:
        asker.ask(RequestCode.REGISTER_BROKER, registration_fields(bodyCrc32="1"), b"{}")
    assert caught.value.response_code == ResponseCode.SYSTEM_ERROR
    assert asker.routes.live_brokers == {}


@pytest.mark.parametrize("body", [b"{", b"[]"])
def test_a_damaged_registration_changes_nothing(asker: Asker, body: bytes) -> None:
    with pytest.raises(BodyInvalid):
        asker.ask(RequestCode.REGISTER_BROKER, registration_fields(), body)
    assert asker.routes.live_brokers == {}


def test_no_body_registers_an_empty_table(asker: Asker) -> None:
    assert asker.ask(RequestCode.REGISTER_BROKER, registration_fields()).code == 0
    [live] = asker.routes.live_brokers.values()
    assert (live.data_version.counter, live.data_version.timestamp_ms, live.connection) == (0, 0, 1)
    assert result_of(asker.routes.topics()) == []


def test_a_broker_before_3_0_11_sends_the_bare_table(asker: Asker) -> None:
    body = b'{"dataVersion":{"counter":1,"timestamp":2},"topicConfigTable":{"T":{"topicName":"T"}}}'
    asker.ask(RequestCode.REGISTER_BROKER, registration_fields(), body, version=36)
    assert result_of(asker.routes.topics()) == ["T"]


def test_a_slave_is_told_its_master(asker: Asker) -> None:
    assert asker.register().ext_fields == {}
    response = asker.register(broker_id=1, addr="127.0.0.1:4446")
    assert response.ext_fields == {"haServerAddr": "127.0.0.1:4445", "masterAddr": "127.0.0.1:4444"}


def test_the_order_topics_are_the_answer_to_a_registration(asker: Asker) -> None:
    assert asker.register().body is None
    kv = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T"}
    asker.ask(RequestCode.PUT_KV_CONFIG, kv | {"value": "pb:4"})
    assert text(asker.register()) == '{"table":{"T":"pb:4"}}'
    asker.ask(RequestCode.DELETE_KV_CONFIG, kv)
    assert text(asker.register()) == '{"table":{}}'


def test_unregister(asker: Asker) -> None:
    asker.register({"T": FOUR_QUEUES})
    fields = {"brokerName": "pb", "brokerAddr": "127.0.0.1:4444", "clusterName": "PC", "brokerId": "0"}
    assert asker.ask(RequestCode.UNREGISTER_BROKER, fields).code == 0
    assert result_of(asker.routes.topics()) == []


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        (b'{"counter":1,"timestamp":1700000000000}', "false"),
        (b'{"counter":2,"timestamp":1700000000000}', "true"),
        (b'{"counter":1,"timestamp":1}', "true"),
        (None, "true"),
    ],
)
def test_query_data_version(asker: Asker, body: bytes | None, changed: str) -> None:
    asker.register({"T": FOUR_QUEUES})
    fields = {"brokerName": "pb", "brokerAddr": "127.0.0.1:4444", "clusterName": "PC", "brokerId": "0"}
    response = asker.ask(RequestCode.QUERY_DATA_VERSION, fields, body)
    assert response.ext_fields == {"changed": changed}
    assert text(response) == '{"counter":1,"timestamp":1700000000000}'


def test_a_data_version_that_takes_long_to_read_is_refused(asker: Asker) -> None:
    fields = {"brokerName": "x", "brokerAddr": "x:1", "clusterName": "PC", "brokerId": "0"}
    with pytest.raises(BodyInvalid, match="at most"):
        asker.ask(RequestCode.QUERY_DATA_VERSION, fields, b"{" + b'\\"' * 60_000)


def test_query_data_version_of_a_stranger(asker: Asker) -> None:
    fields = {"brokerName": "x", "brokerAddr": "x:1", "clusterName": "PC", "brokerId": "0"}
    response = asker.ask(RequestCode.QUERY_DATA_VERSION, fields, b'{"counter":1,"timestamp":1}')
    assert (response.code, response.ext_fields, response.body) == (0, {"changed": "true"}, None)


def test_write_permission(asker: Asker) -> None:
    asker.register({"T": FOUR_QUEUES, "U": FOUR_QUEUES})
    wiped = asker.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "pb"})
    assert wiped.ext_fields == {"wipeTopicCount": "2"}
    assert '"perm":4' in text(asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}))
    added = asker.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "pb"})
    assert added.ext_fields == {"addTopicCount": "2"}
    assert '"perm":6' in text(asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}))
    unknown = asker.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "x"})
    assert unknown.ext_fields == {"wipeTopicCount": "0"}


# --- topics -----------------------------------------------------------------------------------------------------------


def test_topic_lists(asker: Asker) -> None:
    flags = {f"F{flag}": FOUR_QUEUES | {"topicSysFlag": flag} for flag in range(4)}
    asker.register(flags)
    answers = {
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: '{"topicList":["F0","F1","F2","F3"]}',
        RequestCode.GET_UNIT_TOPIC_LIST: '{"topicList":["F1","F3"]}',
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: '{"topicList":["F2","F3"]}',
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: '{"topicList":["F2"]}',
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: '{"brokerAddr":"127.0.0.1:4444","topicList":["PC","pb"]}',
    }
    assert {code: text(asker.ask(code)) for code in answers} == answers
    by_cluster = RequestCode.GET_TOPICS_BY_CLUSTER
    assert text(asker.ask(by_cluster, {"cluster": "PC"})) == '{"topicList":["F0","F1","F2","F3"]}'
    assert text(asker.ask(by_cluster, {"cluster": "x"})) == '{"topicList":[]}'


def test_delete_topic(asker: Asker) -> None:
    asker.register({"T": FOUR_QUEUES, "U": FOUR_QUEUES})
    delete = RequestCode.DELETE_TOPIC_IN_NAMESRV
    assert asker.ask(delete, {"topic": "T", "clusterName": "other"}).code == 0
    assert result_of(asker.routes.topics()) == ["T", "U"]
    assert asker.ask(delete, {"topic": "T", "clusterName": "PC"}).code == 0
    assert asker.ask(delete, {"topic": "U"}).code == 0
    assert asker.ask(delete, {"topic": "U"}).code == 0
    assert result_of(asker.routes.topics()) == []


# --- key and value ----------------------------------------------------------------------------------------------------


def test_key_and_value(asker: Asker) -> None:
    key = {"namespace": "N", "key": "k"}
    missing = asker.ask(RequestCode.GET_KV_CONFIG, key)
    assert (missing.code, missing.remark, missing.ext_fields) == (22, "No config item, Namespace: N Key: k", {})
    nowhere = asker.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"})
    assert (nowhere.code, nowhere.remark) == (22, "No config item, Namespace: N")
    assert asker.ask(RequestCode.PUT_KV_CONFIG, key | {"value": "v"}).code == 0
    assert asker.ask(RequestCode.GET_KV_CONFIG, key).ext_fields == {"value": "v"}
    assert text(asker.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"})) == '{"table":{"k":"v"}}'
    assert asker.ask(RequestCode.DELETE_KV_CONFIG, key).code == 0
    assert asker.ask(RequestCode.DELETE_KV_CONFIG, key).code == 0
    assert asker.ask(RequestCode.GET_KV_CONFIG, key).code == 22


@pytest.mark.parametrize("fields", [{"key": "k", "value": "v"}, {"namespace": "N", "value": "v"}, None])
def test_put_without_namespace_or_key(asker: Asker, fields: dict[str, str] | None) -> None:
    with pytest.raises(RequestRefused, match="namespace or key is null") as caught:
        asker.ask(RequestCode.PUT_KV_CONFIG, fields)
    assert caught.value.response_code == 1


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\x00", "x" * 263, "x" * 1_000_000, "\x1b[2J"])
def test_a_registration_with_a_name_that_is_none_is_refused(asker: Asker, name: str) -> None:
    for field in ("brokerName", "clusterName", "brokerAddr"):
        with pytest.raises(RequestRefused) as caught:
            asker.ask(RequestCode.REGISTER_BROKER, registration_fields(**{field: name}))
        assert len(str(caught.value)) < 400
    with pytest.raises((RequestRefused, BodyInvalid)):
        asker.register({name: FOUR_QUEUES})
    with pytest.raises(RequestRefused):
        asker.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "N", "key": name, "value": "v"})
    assert asker.routes.topic_count == asker.routes.cluster_count == len(asker.routes.live_brokers) == 0


def test_no_more_brokers_and_topics_than_there_may_be(tmp_path: Path) -> None:
    asker = Asker(tmp_path, "brokersMax=2\ntopicsMax=3\n")
    asker.register({"host-1.example.org": FOUR_QUEUES, "%RETRY%" + "g" * 255: FOUR_QUEUES})
    asker.register({"A": FOUR_QUEUES}, addr="127.0.0.1:5555")
    with pytest.raises(RequestRefused, match="brokersMax=2"):
        asker.register({}, addr="127.0.0.1:6666")
    with pytest.raises(RequestRefused, match="topicsMax=3"):
        asker.register({"A": FOUR_QUEUES, "B": FOUR_QUEUES})
    asker.register({"A": FOUR_QUEUES})  # who is there is served
    assert (asker.routes.topic_count, len(asker.routes.live_brokers)) == (3, 2)


def test_no_more_brokers_of_one_topic_and_topics_of_all_brokers_than_there_may_be(tmp_path: Path) -> None:
    asker = Asker(tmp_path, "topicBrokersMax=2\ntopicRoutesMax=5\n")

    def register(name: str, topics: str, broker_id: str = "0") -> None:
        table = {topic: {"topicName": topic, **FOUR_QUEUES} for topic in topics}
        version = {"counter": sum(map(ord, topics)), "timestamp": 1}
        body = {"topicConfigSerializeWrapper": {"dataVersion": version, "topicConfigTable": table}}
        fields = registration_fields(brokerName=name, brokerAddr=f"{name}:{broker_id}", brokerId=broker_id)
        asker.ask(RequestCode.REGISTER_BROKER, fields, json.dumps(body).encode())

    register("a", "TU")
    register("b", "TVW")
    with pytest.raises(RequestRefused, match="brokers of one topic; 1 more would exceed topicBrokersMax=2"):
        register("c", "T")
    with pytest.raises(RequestRefused, match="topicRoutesMax=5"):
        register("c", "X")
    register("c", "T", broker_id="1")  # a slave: its topics are not entered
    assert asker.processor.admission.refused == 2
    register("a", "TU")  # who is there is served
    assert (asker.routes.route_count, asker.routes.topic_count) == (5, 4)
    asker.routes.delete_topic("W")
    register("c", "X")
    asker.routes.unregister("b", "b:0", 0)
    assert asker.routes.route_count == 3
    register("c", "TX")
    route = asker.routes.route("T")
    assert route is not None and [queue.broker_name for queue in route.queue_datas] == ["a", "c"]


def test_a_broker_is_of_few_clusters_and_has_few_filter_servers(tmp_path: Path) -> None:
    asker = Asker(tmp_path)
    for number in range(CLUSTERS_MAX):
        asker.ask(RequestCode.REGISTER_BROKER, registration_fields(clusterName=f"C{number}"))
    with pytest.raises(RequestRefused, match="clusters"):
        asker.ask(RequestCode.REGISTER_BROKER, registration_fields(clusterName="another"))
    asker.ask(RequestCode.REGISTER_BROKER, registration_fields(clusterName="C3"))
    body = json.dumps({"filterServerList": [f"f:{number}" for number in range(FILTER_SERVERS_MAX + 1)]}).encode()
    with pytest.raises(RequestRefused, match="filter servers"):
        asker.ask(RequestCode.REGISTER_BROKER, registration_fields(clusterName="C3"), body)
    assert asker.routes.cluster_count == CLUSTERS_MAX


# --- configuration ----------------------------------------------------------------------------------------------------


def test_configuration_is_read_and_changed_in_the_file_too(tmp_path: Path) -> None:
    asker = Asker(tmp_path, "# our name server\norderMessageEnable=false\nlistenPort=19876\n")
    assert "orderMessageEnable=false\n" in text(asker.ask(RequestCode.GET_NAMESRV_CONFIG))
    changes = b"orderMessageEnable=true\nlistenPort=29876\n"
    assert asker.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=changes).code == 0
    assert asker.path.read_text() == "# our name server\norderMessageEnable=true\nlistenPort=29876\n"
    after = text(asker.ask(RequestCode.GET_NAMESRV_CONFIG))
    assert "orderMessageEnable=true\n" in after
    assert "listenPort=29876\n" in after  # what the next start takes; nobody moves the port of a running server
    assert asker.processor.settings.server.listen_port == 19876
    assert asker.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"listenPort=19876").code == 0
    assert "listenPort=19876\n" in text(asker.ask(RequestCode.GET_NAMESRV_CONFIG))


@pytest.mark.parametrize(
    ("body", "check"),
    [
        (b"kvConfigPath=/x", lambda exc: (exc.response_code, str(exc)) == (16, "Can not update config in black list.")),
        (b"a=\\u1", lambda exc: (exc.response_code, str(exc)) == (1, "string2Properties error")),
        (b"\xff", lambda exc: (exc.response_code, str(exc)) == (1, "string2Properties error")),
        (b"rocketmqHome=/x\\nlistenPort=1", lambda exc: exc.response_code == 16),
        (b"bindAddress=1\\nlistenPort=1", lambda exc: "line ends or control characters" in str(exc)),
        (b"orderMesageEnable=true", lambda exc: "did you mean orderMessageEnable?" in str(exc)),
    ],
)
def test_changes_that_are_refused(asker: Asker, body: bytes, check: Callable[[Exception], bool]) -> None:
    with pytest.raises((RequestRefused, ConfigError)) as caught:
        asker.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
    assert check(caught.value)
    assert asker.path.read_text() == ""


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_an_unknown_code_is_answered(asker: Asker) -> None:
    response = asker.ask(9999)
    assert (response.code, response.remark) == (3, " request type 9999 not supported")


def test_requests_are_counted_by_name(asker: Asker) -> None:
    asker.register()
    asker.register()
    asker.ask(9999)
    assert asker.processor.requests == {"REGISTER_BROKER": 2, "unknown": 1}
