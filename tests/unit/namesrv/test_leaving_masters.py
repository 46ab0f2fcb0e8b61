"""A master that has left stays in routes until its successor registers, or its time is over."""

from rocketpy.namesrv.route_info import RouteInfoManager
from tests.support.routes import A_SLAVE, A, masters, registration


def test_a_master_that_leaves_and_is_not_replaced_goes_after_its_time(routes: RouteInfoManager) -> None:
    routes.register(registration(master_epoch=7), 1, 0)
    routes.connection_closed(1, 100)
    assert routes.drop_leaving(3100) == [A]
    assert masters(routes) == {1: A_SLAVE}
    routes.register(registration(broker_addr=A_SLAVE, master_epoch=8), 2, 4000)
    routes.register(registration(broker_addr=A_SLAVE, broker_id=1), 2, 5000)
    assert masters(routes) == {0: A_SLAVE, 1: A_SLAVE}
    assert routes.drop_leaving(8000) == [A_SLAVE]
    assert masters(routes) == {1: A_SLAVE}


def test_a_master_that_returns_before_its_time_stays(routes: RouteInfoManager) -> None:
    routes.register(registration(master_epoch=7), 1, 0)
    routes.connection_closed(1, 100)
    routes.register(registration(master_epoch=8), 6, 200)
    assert routes.drop_leaving(9999) == []
    assert masters(routes) == {0: A, 1: A_SLAVE}
    routes.unregister(A)
    assert masters(routes) == {1: A_SLAVE}
