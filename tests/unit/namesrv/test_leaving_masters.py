"""A master that has left stays in routes until its successor registers, or its time is over."""

from pathlib import Path

import trio
import trio.testing

from rocketpy.config import NamesrvConfig, NamesrvSettings
from rocketpy.namesrv import NameServer
from rocketpy.namesrv.namesrv import LEAVING_INTERVAL_S, LEAVING_REST_S
from rocketpy.namesrv.route_info import LEAVING_MS, RouteInfoManager
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


def test_the_name_server_looks_seldom_while_no_master_is_leaving(tmp_path: Path) -> None:
    server = NameServer(NamesrvSettings(namesrv=NamesrvConfig(kv_config_path=str(tmp_path / "kv.json"))))
    (duty,) = (duty for duty in server.duties() if duty.name == "dropping masters that have left")
    looks: list[float] = []
    drop = server.routes.drop_leaving

    def look(now_ms: int) -> list[str]:
        looks.append(now_ms / 1000)
        return drop(now_ms)

    server.routes.drop_leaving = look  # type: ignore[method-assign]

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(duty.run)
            await trio.sleep(10.25)
            assert looks == [LEAVING_REST_S * number for number in range(6)]
            looks.clear()
            server.routes.register(registration(master_epoch=7), 1, 10_250)
            server.routes.connection_closed(1, 10_250)
            assert masters(server.routes) == {0: A}
            await trio.sleep(LEAVING_MS / 1000 + LEAVING_INTERVAL_S)
            assert "a" not in server.routes.cluster_info().broker_addr_table
            assert looks == [12.0, 12.5, 13.0, 13.5]
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
