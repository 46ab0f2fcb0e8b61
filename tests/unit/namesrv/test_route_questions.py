"""Questions about the route tables: lists of topics, and copies of what is asked for."""

from rocketpy.namesrv.route_info import RouteInfoManager
from rocketpy.remoting.work import result_of
from tests.support.routes import A_SLAVE, A, B, registration, topic


def test_topics_of_a_cluster(routes: RouteInfoManager) -> None:
    assert sorted(result_of(routes.topics_of_cluster("C"))) == ["T1", "T2"]
    assert result_of(routes.topics_of_cluster("unknown")) == []


def test_system_topics(routes: RouteInfoManager) -> None:
    assert routes.system_topics() == (["C", "a", "b"], A)
    assert RouteInfoManager().system_topics() == ([], None)


def test_topics_by_unit_flag() -> None:
    routes = RouteInfoManager()
    routes.register(registration(*(topic(f"F{flag}", flag=flag) for flag in range(4))), 1, 0)
    assert result_of(routes.unit_topics()) == ["F1", "F3"]
    assert result_of(routes.unit_sub_topics()) == ["F2", "F3"]
    assert result_of(routes.unit_sub_ununit_topics()) == ["F2"]


def test_what_is_handed_out_is_a_copy(routes: RouteInfoManager) -> None:
    route = routes.route("T1")
    assert route is not None
    route.broker_datas[0].broker_addrs.clear()
    route.queue_datas.clear()
    routes.cluster_info().broker_addr_table["b"].broker_addrs.clear()
    again = routes.route("T1")
    assert again is not None
    assert [broker.broker_addrs for broker in again.broker_datas] == [{0: A, 1: A_SLAVE}, {0: B}]
    assert len(again.queue_datas) == 2
