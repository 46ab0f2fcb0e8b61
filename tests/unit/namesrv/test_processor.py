"""Every code of the name server, asked as clients, brokers and mqadmin ask it."""

import json
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
import trio

from rocketpy.codes import RequestCode
from rocketpy.errors import BodyInvalid, ConfigError, RequestRefused
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.work import result_of
from tests.support.name_server import FOUR_QUEUES, Asker, FakeChannel, text

ROUTE = (
    '{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:4444","1":"127.0.0.1:4446"},"brokerName":"pb","cluster":"PC"}],'
    '"filterServerTable":{},"queueDatas":[{"brokerName":"pb","perm":6,"readQueueNums":4,"topicSysFlag":0,'
    '"writeQueueNums":4}]}'
)
ROUTE_BARE = ROUTE.replace('{"0":', "{0:").replace(',"1":', ",1:")


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
    """Holds: name server, routes; name server, queue data by broker and broker data by id."""
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
    """Holds: trap, order topics need orderMessageEnable."""
    asker = Asker(tmp_path, f"orderMessageEnable={enabled}")
    asker.register({"T": FOUR_QUEUES})
    asker.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "pb:4"})
    route = json.loads(text(asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})))
    assert route.get("orderTopicConf") == expected


# --- registration -----------------------------------------------------------------------------------------------------


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


def test_topic_lists_are_made_one_after_the_other(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: Each of 1 024 requests of one connection held the names of all topics at the same time."""
    in_work = set[int]()
    most = 0

    def topics() -> Generator[None, None, list[str]]:
        nonlocal most
        in_work.add(id(frame := object()))
        most = max(most, len(in_work))
        yield
        in_work.remove(id(frame))
        return ["T"]

    monkeypatch.setattr(asker.routes, "topics", topics)
    code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER

    async def ask_all() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                request = RemotingCommand.request(code)
                nursery.start_soon(asker.processor.process, request, FakeChannel(1, "127.0.0.1", ""))

    trio.run(ask_all)
    assert most == 1 and asker.processor.requests[RequestCode(code).name] == 5


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


# --- configuration ----------------------------------------------------------------------------------------------------


def test_configuration_is_read_and_changed_in_the_file_too(tmp_path: Path) -> None:
    """Fault: getNamesrvConfig and getBrokerConfig showed the old value after an update that takes effect at restart."""
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
    """Holds: trap, unknown codes at the name server."""
    response = asker.ask(9999)
    assert (response.code, response.remark) == (3, " request type 9999 not supported")


def test_requests_are_counted_by_name(asker: Asker) -> None:
    asker.register()
    asker.register()
    asker.ask(9999)
    assert asker.processor.requests == {"REGISTER_BROKER": 2, "unknown": 1}
