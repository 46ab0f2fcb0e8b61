"""Registrations, as brokers of several versions send them, and what of them is refused."""

import json
import zlib
from pathlib import Path

import pytest

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import BodyInvalid, RequestRefused
from rocketpy.namesrv.admission import CLUSTERS_MAX, FILTER_SERVERS_MAX
from rocketpy.remoting.work import result_of
from tests.support.name_server import FOUR_QUEUES, Asker, registration_fields, text

# A registration as a 4.9 broker sends it with compressedRegister=true, after inflation.
COMPRESSED_BLOCKS = (
    b'\x00\x00\x00\x27{"counter":0,"timestamp":1795161004916}'
    b"\x00\x00\x00\x02"
    b"\x00\x00\x00\x14T 16 16 6 SINGLE_TAG"
    b"\x00\x00\x00\x13T2 1 2 6 SINGLE_TAG"
    b"\x00\x00\x00\x02[]"
)


# --- routes -----------------------------------------------------------------------------------------------------------


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


def test_a_master_that_is_refused_is_logged_with_both_addresses(asker: Asker, caplog: pytest.LogCaptureFixture) -> None:
    """A registration of an epoch that no group has is found by where it came from."""
    forged = registration_fields(brokerAddr="6.6.6.6:1", masterEpoch=str((1 << 63) - 1))
    assert asker.ask(RequestCode.REGISTER_BROKER, forged, connection=9).code == 0
    for _ in range(3):
        with pytest.raises(RequestRefused, match=r"6\.6\.6\.6:1 is the master of epoch 9223372036854775807"):
            asker.ask(RequestCode.REGISTER_BROKER, registration_fields(masterEpoch="7"), connection=1)
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    for part in ("127.0.0.1:4444", "6.6.6.6:1", "epoch 7", "from 127.0.0.1:50001", "from 127.0.0.1:50009"):
        assert part in line


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


# --- key and value ----------------------------------------------------------------------------------------------------


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
    """Fault: A name server accepted a million topics of 10 000 brokers each."""
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
    asker.routes.unregister("b:0")
    assert asker.routes.route_count == 3
    register("c", "TX")
    route = asker.routes.route("T")
    assert route is not None and [queue.broker_name for queue in route.queue_datas] == ["a", "c"]


def test_a_broker_is_of_few_clusters_and_has_few_filter_servers(tmp_path: Path) -> None:
    """Fault: A registration could bring 256 KB of filter servers for each of 10 000 brokers."""
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
