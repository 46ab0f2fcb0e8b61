"""The route tables: each rule of coming, going and asking."""

from collections.abc import Generator

import attrs
import pytest

from rocketpy.errors import RequestRefused
from rocketpy.namesrv.registration import MasterInfo, Registration
from rocketpy.namesrv.route_info import BROKER_EXPIRY_MS, LEAVING_MS, RouteInfoManager
from rocketpy.namesrv.route_questions import TOPICS_PER_STEP
from rocketpy.remoting.bodies.route import BrokerData, QueueData
from rocketpy.remoting.bodies.topic import DataVersion
from rocketpy.remoting.work import result_of
from tests.support.routes import A_SLAVE, A, B, masters, registration, topic

L = "10.0.0.9:10911"


def test_a_route_names_queues_and_brokers(routes: RouteInfoManager) -> None:
    """Holds: name server, routes."""
    route = routes.route("T1")
    assert route is not None
    assert route.queue_datas == [
        QueueData(broker_name="a", read_queue_nums=4, write_queue_nums=4, perm=6, topic_sys_flag=0),
        QueueData(broker_name="b", read_queue_nums=8, write_queue_nums=8, perm=6, topic_sys_flag=0),
    ]
    assert route.broker_datas == [
        BrokerData(cluster="C", broker_name="a", broker_addrs={0: A, 1: A_SLAVE}),
        BrokerData(cluster="C", broker_name="b", broker_addrs={0: B}),
    ]
    assert routes.route("none") is None


def test_a_slave_brings_no_topics(routes: RouteInfoManager) -> None:
    """Holds: replication, master and slaves of one broker name."""
    assert routes.route("T9") is None
    assert sorted(result_of(routes.topics())) == ["T1", "T2"]


def test_a_slave_is_told_its_master() -> None:
    routes = RouteInfoManager()
    slave = registration(broker_id=1, broker_addr=A_SLAVE)
    assert routes.register(slave, 2, 0) == MasterInfo()
    assert routes.register(registration(), 1, 0) == MasterInfo()
    assert routes.register(slave, 2, 0) == MasterInfo(A, "10.0.0.1:10912")
    routes.connection_closed(1, 0)
    assert routes.register(slave, 2, 0) == MasterInfo()


def test_topics_change_only_with_the_version(routes: RouteInfoManager) -> None:
    routes.register(registration(topic("T1", 16)), 1, 0)
    assert [queue.read_queue_nums for queue in routes.route("T1").queue_datas] == [4, 8]  # type: ignore[union-attr]
    routes.register(registration(topic("T1", 16), counter=2), 1, 0)
    assert [queue.read_queue_nums for queue in routes.route("T1").queue_datas] == [16, 8]  # type: ignore[union-attr]


def test_a_topic_that_is_not_mentioned_stays(routes: RouteInfoManager) -> None:
    """Holds: trap, topics that a broker no longer mentions stay."""
    routes.register(registration(topic("T3"), counter=2), 1, 0)
    assert sorted(result_of(routes.topics())) == ["T1", "T2", "T3"]


def test_a_slave_that_became_master_leaves_its_old_id(routes: RouteInfoManager) -> None:
    routes.connection_closed(1, 0)
    routes.register(registration(topic("T1"), broker_addr=A_SLAVE, broker_id=0), 2, 0)
    assert routes.cluster_info().broker_addr_table["a"].broker_addrs == {0: A_SLAVE}


def test_another_address_under_the_same_id_replaces_it(routes: RouteInfoManager) -> None:
    routes.register(registration(broker_addr="10.0.0.9:1"), 9, 0)
    assert routes.cluster_info().broker_addr_table["a"].broker_addrs == {0: "10.0.0.9:1", 1: A_SLAVE}


def test_the_master_goes_and_the_slave_keeps_the_topics(routes: RouteInfoManager) -> None:
    assert routes.connection_closed(1, 0) == [A]
    route = routes.route("T2")
    assert route is not None
    assert route.broker_datas == [BrokerData(cluster="C", broker_name="a", broker_addrs={1: A_SLAVE})]


def test_the_last_address_takes_topics_and_cluster_with_it(routes: RouteInfoManager) -> None:
    """Holds: name server, route tables and filter servers."""
    for connection in (1, 2):
        routes.connection_closed(connection, 0)
    assert result_of(routes.topics()) == ["T1"]
    assert routes.cluster_info().cluster_addr_table == {"C": ["b"]}
    routes.connection_closed(3, 0)
    assert result_of(routes.topics()) == []
    assert routes.cluster_info().cluster_addr_table == {}
    assert (routes.cluster_count, routes.topic_count, routes.live_brokers) == (0, 0, {})


def test_the_late_close_of_an_old_connection_changes_nothing(routes: RouteInfoManager) -> None:
    """Holds: trap, the connection ends a registration, not the address."""
    routes.register(registration(topic("T1"), topic("T2")), 11, 0)
    assert routes.connection_closed(1, 0) == []
    assert routes.connection_closed(11, 0) == [A]


def test_one_connection_may_carry_several_brokers() -> None:
    routes = RouteInfoManager()
    routes.register(registration(), 1, 0)
    routes.register(registration(broker_name="b", broker_addr=B), 1, 0)
    assert routes.connection_closed(1, 0) == [A, B]


def test_silence_for_two_minutes_ends_a_broker(routes: RouteInfoManager) -> None:
    """Holds: name server, silent brokers expire after 120 s."""
    routes.register(registration(broker_id=1, broker_addr=A_SLAVE), 2, 1)
    assert routes.expire(BROKER_EXPIRY_MS) == []
    assert routes.expire(BROKER_EXPIRY_MS + 1) == [(A, 1), (B, 3)]
    assert list(routes.live_brokers) == [A_SLAVE]


def test_an_unchanged_version_is_a_sign_of_life(routes: RouteInfoManager) -> None:
    version = DataVersion(timestamp_ms=1, counter=1)
    assert routes.query_data_version(A, version, 1, 1) == (False, version)
    assert routes.query_data_version(B, DataVersion(timestamp_ms=1, counter=2), 3, 1) == (True, version)
    assert routes.query_data_version("unknown:1", version, 1, 1) == (True, None)
    assert [addr for addr, _ in routes.expire(BROKER_EXPIRY_MS + 1)] == [A_SLAVE, B]


def test_unregister(routes: RouteInfoManager) -> None:
    routes.unregister(A)
    assert routes.cluster_info().broker_addr_table["a"].broker_addrs == {1: A_SLAVE}
    routes.unregister(A_SLAVE)
    assert result_of(routes.topics()) == ["T1"]
    routes.unregister("x:1")
    assert result_of(routes.topics()) == ["T1"]


# --- masters of automatic failover ------------------------------------------------------------------------------------


def test_a_master_does_not_replace_one_of_a_newer_epoch(routes: RouteInfoManager) -> None:
    """A broker that wakes after a pause registers before it has learned of its successor.
    Fault: A master that woke after its lease had ended took its successor out of the routes."""
    routes.register(registration(broker_addr=A_SLAVE, master_epoch=8), 2, 0)
    with pytest.raises(RequestRefused, match=r"10\.0\.0\.1:10911 was master of a in epoch 7; .* epoch 8"):
        routes.register(registration(topic("T9"), master_epoch=7), 1, 0)
    assert masters(routes) == {0: A_SLAVE}
    assert routes.route("T9") is None
    routes.register(registration(broker_id=1), 1, 0)
    assert masters(routes) == {0: A_SLAVE, 1: A}
    routes.register(registration(master_epoch=9), 1, 0)
    assert masters(routes) == {0: A}


def test_a_master_replaces_what_has_no_newer_epoch(routes: RouteInfoManager) -> None:
    """Of a broker without epochs, its own, or of a master that is gone: a group may have begun anew."""
    routes.register(registration(master_epoch=5), 1, 0)
    routes.register(registration(master_epoch=4), 1, 0)
    routes.register(registration(broker_addr=A_SLAVE, master_epoch=6), 2, 0)
    assert masters(routes) == {0: A_SLAVE}
    routes.register(registration(), 1, 0)
    assert masters(routes) == {0: A}, "a broker that says no epoch is not fenced"
    routes.register(registration(broker_addr=A_SLAVE, master_epoch=2), 2, 0)
    assert routes.connection_closed(2, 0) == routes.drop_leaving(LEAVING_MS) == [A_SLAVE]
    routes.register(registration(master_epoch=1), 1, 0)
    assert masters(routes) == {0: A}


def test_a_replaced_master_that_unregisters_leaves_its_successor(routes: RouteInfoManager) -> None:
    """Fault: A replaced master that unregistered took its successor out of the routes."""
    routes.register(registration(broker_addr=A_SLAVE, master_epoch=8), 2, 0)
    routes.unregister(A)
    assert masters(routes) == {0: A_SLAVE}


@pytest.mark.parametrize("how", ["its connection closes", "it becomes a slave", "both"])
def test_a_master_that_leaves_stays_until_its_successor_registers(routes: RouteInfoManager, how: str) -> None:
    """A client that asked between the two masters of a switch-over found none."""
    routes.register(registration(master_epoch=7), 1, 0)
    own: dict[int, str] = {0: A, 1: A_SLAVE}
    if how != "it becomes a slave":
        routes.connection_closed(1, 100)
    if how != "its connection closes":
        assert routes.register(registration(broker_id=2), 4, 200) == MasterInfo()
        own[2] = A
    assert masters(routes) == own
    assert routes.drop_leaving(3099) == []
    with pytest.raises(RequestRefused):
        routes.register(registration(broker_addr="10.0.0.7:10911", master_epoch=6), 5, 300)
    routes.register(registration(broker_addr=A_SLAVE, master_epoch=8), 2, 300)
    assert masters(routes)[0] == A_SLAVE and A not in (masters(routes)[0], masters(routes).get(1))
    routes.drop_leaving(9999)
    assert masters(routes) == ({0: A_SLAVE} if how == "its connection closes" else {0: A_SLAVE, 2: A})


FORGED_EPOCH = (1 << 63) - 1
FORGER = 9  # its connection


@pytest.mark.parametrize("how", ["its connection closes", "it is silent"])
def test_an_epoch_nobody_can_have_lasts_as_long_as_its_registration(routes: RouteInfoManager, how: str) -> None:
    """Anyone who reaches the port can register it."""
    routes.register(registration(broker_addr="6.6.6.6:1", master_epoch=FORGED_EPOCH), FORGER, 0)
    own = registration(master_epoch=7)
    with pytest.raises(RequestRefused):
        routes.register(own, 1, 100)
    if how == "it is silent":
        assert routes.expire(BROKER_EXPIRY_MS + 1)
    else:
        assert routes.connection_closed(FORGER, 100) == routes.drop_leaving(100 + LEAVING_MS) == ["6.6.6.6:1"]
    routes.register(own, 1, BROKER_EXPIRY_MS + 2)
    assert masters(routes)[0] == A


@pytest.mark.parametrize("addr", [A, A_SLAVE])
def test_a_broker_whose_address_another_connection_has_registered_registers_again(
    routes: RouteInfoManager, addr: str
) -> None:
    """Its question for its version kept the forged registration alive, and told it that all was well.
    Fault: A registration with a forged epoch at a broker's address was kept alive by that broker."""
    version, own, connection = DataVersion(timestamp_ms=1, counter=1), int(addr == A_SLAVE), 2 if addr == A_SLAVE else 1
    routes.register(registration(broker_addr=addr, master_epoch=FORGED_EPOCH), FORGER, 0)
    assert routes.query_data_version(addr, version, connection, 100) == (True, version)
    assert routes.expire(BROKER_EXPIRY_MS + 1), "the question of another connection is no sign of life"
    routes.register(registration(broker_addr=addr, master_epoch=FORGED_EPOCH), FORGER, 0)
    routes.register(registration(broker_addr=addr, broker_id=own, master_epoch=None if own else 7), connection, 200)
    assert routes.query_data_version(addr, version, connection, 200) == (False, version)
    routes.drop_leaving(200 + LEAVING_MS)
    routes.register(registration(broker_addr="10.0.0.7:10911", master_epoch=8), 5, 9000)
    assert masters(routes)[0] == "10.0.0.7:10911"


def test_write_permission_is_taken_and_given(routes: RouteInfoManager) -> None:
    """Holds: cluster, taking a broker out of service."""
    routes.register(registration(topic("T5", perm=4), counter=2), 1, 0)
    assert result_of(routes.wipe_write_perm("a")) == 3
    assert [queue.perm for queue in routes.route("T1").queue_datas] == [4, 6]  # type: ignore[union-attr]
    routes.register(registration(topic("T1"), counter=2), 1, 0)
    assert [queue.perm for queue in routes.route("T1").queue_datas] == [4, 6]  # type: ignore[union-attr]
    assert result_of(routes.add_write_perm("a")) == 3
    assert routes.route("T5").queue_datas[0].perm == 6  # type: ignore[union-attr]
    assert result_of(routes.wipe_write_perm("unknown")) == 0


def perms(routes: RouteInfoManager, topic: str) -> dict[str, int]:
    route = routes.route(topic)
    return {} if route is None else {queue.broker_name: queue.perm for queue in route.queue_datas}


def test_no_registration_undoes_a_wipe(routes: RouteInfoManager) -> None:
    """Holds: trap, a wiped write permission comes back."""
    result_of(routes.wipe_write_perm("a"))
    routes.register(registration(topic("T1"), topic("New"), counter=2), 1, 0)
    assert (perms(routes, "T1")["a"], perms(routes, "New")) == (4, {"a": 4})
    routes.connection_closed(1, 0)
    routes.register(registration(topic("T1"), counter=2), 9, 0)
    assert perms(routes, "T1")["a"] == 4, "a lost connection is no restart"
    result_of(routes.add_write_perm("a"))
    routes.register(registration(topic("T1"), counter=3), 9, 0)
    assert perms(routes, "T1")["a"] == 6


def test_a_master_that_stops_takes_its_wipe_along(routes: RouteInfoManager) -> None:
    slave = registration(broker_addr="10.0.0.8:10911", broker_id=1)
    routes.register(slave, 7, 0)
    result_of(routes.wipe_write_perm("a"))
    routes.unregister("10.0.0.8:10911")
    routes.register(registration(topic("T1"), counter=2), 1, 0)
    assert perms(routes, "T1")["a"] == 4, "a slave has stopped"
    routes.register(slave, 7, 0)
    routes.unregister(registration().broker_addr)
    routes.register(registration(topic("T1"), counter=2), 9, 0)
    assert perms(routes, "T1")["a"] == 6


def test_delete_topic(routes: RouteInfoManager) -> None:
    """Holds: trap, topics that a broker no longer mentions stay."""
    routes.register(registration(topic("T1"), cluster="D", broker_name="d", broker_addr="d:1"), 4, 0)
    routes.delete_topic("T1", "C")
    assert [queue.broker_name for queue in routes.route("T1").queue_datas] == ["d"]  # type: ignore[union-attr]
    routes.delete_topic("T1", "unknown")
    routes.delete_topic("T1")
    assert routes.route("T1") is None
    routes.delete_topic("T1", "C")
    routes.delete_topic("T1")


def test_filter_servers(routes: RouteInfoManager) -> None:
    """Holds: name server, route tables and filter servers."""

    def known() -> dict[str, list[str]]:
        route = routes.route("T2")
        assert route is not None
        return dict(route.filter_server_table)

    routes.register(registration(filter_servers=("f:1", "f:2")), 1, 0)
    assert known() == {A: ["f:1", "f:2"]}
    routes.register(registration(filter_servers=None), 1, 0)
    assert known() == {A: ["f:1", "f:2"]}
    routes.register(registration(filter_servers=()), 1, 0)
    assert known() == {}


def steps_of(work: Generator[None, None, object]) -> int:
    return sum(1 for _ in work)


def large(routes: RouteInfoManager, topics: int = 5 * TOPICS_PER_STEP, **changes: object) -> Registration:
    made = registration(*(topic(f"L{number}") for number in range(topics)), broker_name="l", broker_addr=L, **changes)
    routes.register(made, 9, 0)
    return made


def test_what_goes_through_all_topics_is_done_in_steps(routes: RouteInfoManager) -> None:
    """Fault: Registering 100 000 topics, or the end of their broker, blocked the name server for a second."""
    made = large(routes)
    again = attrs.evolve(made, data_version=DataVersion(counter=9))
    for work in (
        routes.registering(again, 9, 0),
        routes.topics(),
        routes.topics_of_cluster("C"),
        routes.unit_topics(),
        routes.wipe_write_perm("l"),
        routes.add_write_perm("l"),
    ):
        assert steps_of(work) >= 5
    routes.connection_closed(9, 0)
    assert routes.has_gone_brokers and sorted(result_of(routes.topics())) == ["T1", "T2"], "out of answers at once"
    assert routes.route("L7") is None and result_of(routes.wipe_write_perm("l")) == 0
    assert steps_of(routes.forgetting()) >= 5
    assert routes.topic_count == 2 and not routes.has_gone_brokers


def test_a_broker_that_goes_while_it_is_entered_leaves_nothing(routes: RouteInfoManager) -> None:
    topics = {f"L{number}": topic(f"L{number}") for number in range(5 * TOPICS_PER_STEP)}
    work = routes.registering(registration(broker_name="l", broker_addr=L, topics=topics), 9, 0)
    next(work)
    assert routes.query_data_version(L, DataVersion(timestamp_ms=1, counter=1), 9, 0)[0], (
        "not known before all is entered"
    )
    routes.connection_closed(9, 0)
    assert steps_of(work) == 0
    result_of(routes.forgetting())
    assert sorted(result_of(routes.topics())) == ["T1", "T2"] and L not in routes.live_brokers


def test_a_broker_that_returns_has_only_what_it_says_now(routes: RouteInfoManager) -> None:
    large(routes)
    routes.connection_closed(9, 0)
    routes.register(registration(topic("L1"), broker_name="l", broker_addr=L), 10, 0)
    assert sorted(result_of(routes.topics())) == ["L1", "T1", "T2"]
    assert routes.topic_count == 3


def test_an_address_is_of_the_broker_that_it_named_last(routes: RouteInfoManager) -> None:
    """Each name that a stranger's address took stayed for ever, beyond any bound.
    Fault: One address that registered under ever new names filled the name server's memory."""
    for number in range(100):
        names = {"cluster": f"K{number}", "broker_name": f"n{number}"}
        routes.register(registration(topic("N"), broker_addr="n:1", **names), 9, 0)
    assert set(routes.cluster_info().broker_addr_table) == {"a", "b", "n99"}
    assert set(routes.cluster_info().cluster_addr_table) == {"C", "K99"}
    assert routes.connection_closed(9, 0) == ["n:1"]
    assert set(routes.cluster_info().broker_addr_table) == {"a", "b"}
    assert set(routes.cluster_info().cluster_addr_table) == {"C"}


def test_an_address_that_unregisters_is_nobodys(routes: RouteInfoManager) -> None:
    """Fault: Names that an address unregistered under another name stayed in memory."""
    routes.register(registration(topic("N"), broker_name="n", broker_addr="n:1"), 9, 0)
    routes.unregister("n:1")
    assert set(routes.cluster_info().broker_addr_table) == {"a", "b"}
    assert not routes.has_broker("n:1")


def test_brokers_of_one_connection_go_without_a_look_at_the_others(routes: RouteInfoManager) -> None:
    """Ten thousand of them held the name server for so long that it was killed.
    Fault: A closing connection that had registered 10 000 brokers blocked the name server for over ten seconds."""
    for number in range(10_000):
        routes.register(
            registration(cluster=f"K{number}", broker_name=f"n{number}", broker_addr=f"n:{number}"), 10 + number % 2, 0
        )
    for number in reversed(range(0, 10_000, 2)):
        routes.unregister(f"n:{number}")
        routes.register(registration(cluster=f"K{number}", broker_name=f"n{number}", broker_addr=f"n:{number}"), 10, 0)
    assert len(routes.connection_closed(10, 0)) == 5_000
    assert len(routes.connection_closed(11, 0)) == 5_000
    assert set(routes.cluster_info().broker_addr_table) == {"a", "b"}
