"""A master with automatic failover registers again where the route shows another one or none, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from rocketpy.broker.registration import outer_api
from rocketpy.broker.registration.master_route import AT_ONCE, MasterRoute
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import ConnectFailed
from rocketpy.remoting.bodies.route import BrokerData, TopicRouteData
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.namesrv import QueryDataVersionResponseHeader
from tests.support.slow_path import SlowPathRig

OWN, OTHER = "127.0.0.1:10911", "127.0.0.1:10921"
ONE, TWO = "10.0.0.1:9876", "10.0.0.2:9876"


@attrs.define(eq=False)
class Shown:
    """Name servers whose routes show these brokers of broker-a; None: the topic is unknown. Or they refuse the question
    (`code`), or do not answer (`is_down`)."""

    routes: dict[str, dict[int, str] | None]
    is_down: bool = False
    code: int = 0
    registered: list[str] = attrs.field(factory=list)

    async def invoke(self, address: str, request: RemotingCommand, timeout_s: float) -> RemotingCommand:
        await trio.lowlevel.checkpoint()
        if self.is_down:
            raise ConnectFailed(f"connect to <{address}> failed")
        if request.code == RequestCode.REGISTER_BROKER:
            self.registered.append(address)
            return RemotingCommand.response()
        if request.code == RequestCode.QUERY_DATA_VERSION:
            return RemotingCommand.response(header=QueryDataVersionResponseHeader(changed=False))
        assert (request.ext_fields or {})["topic"] == "broker-a"
        if self.code:
            return RemotingCommand.response(self.code, "busy")
        addrs = self.routes[address]
        if addrs is None:
            return RemotingCommand.response(17, "No topic route info")
        broker = BrokerData(cluster="DefaultCluster", broker_name="broker-a", broker_addrs=addrs)
        return RemotingCommand.response(body=TopicRouteData(broker_datas=[broker], queue_datas=[]).encode())


@pytest.mark.parametrize("topics", [0, 10_001])
def test_the_name_server_that_shows_another_master_is_told_again(tmp_path: Path, topics: int) -> None:
    """With forceRegister=false, or many topics, it had the version of the table already, and was never told.
    Fault: A master unknown to a name server waited up to a minute for its next registration."""
    shown = Shown({ONE: {0: OWN}, TWO: {0: OWN}})

    async def main() -> None:
        rig = rigged(tmp_path, shown, topics)
        rig.broker.be_master(True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.broker._outer_api.run)
            await trio.sleep(5)
            assert sorted(shown.registered) == [ONE, TWO]
            shown.registered.clear()
            for route in ({0: OTHER, 2: OWN}, {1: OTHER}, None):
                shown.routes[TWO] = route
                await MasterRoute(rig.services.settings, rig.broker._outer_api).look()
                await trio.sleep(0.1)
            assert shown.registered == [TWO] * 3
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize("why", ["shown", "busy", "no answer", "a slave", "not certain"])
def test_there_is_nothing_to_tell(tmp_path: Path, why: str) -> None:
    shown = Shown({ONE: {0: OWN}, TWO: {0: OWN, 1: OTHER}})

    async def main() -> None:
        rig = rigged(tmp_path, shown, 0, epoch=None if why == "not certain" else 5)
        rig.broker.be_master(why != "a slave")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.broker._outer_api.run)
            await trio.sleep(5)
            shown.registered.clear()
            if why != "shown":
                shown.routes[TWO] = {0: OTHER}
            shown.code = ResponseCode.SYSTEM_BUSY if why == "busy" else 0
            shown.is_down = why == "no answer"
            await MasterRoute(rig.services.settings, rig.broker._outer_api).look()
            await trio.sleep(0.1)
            assert shown.registered == []
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_name_server_that_goes_on_showing_another_master_is_told_less_and_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_taken: bool
) -> None:
    """A forged registration has an epoch above all others, or is repeated after each of ours. The table, which may have
    megabytes, was sent every second.
    Fault: A refused master sent its whole table every second."""
    shown = Shown({ONE: {0: OWN}, TWO: {0: OTHER}})
    monkeypatch.setattr(outer_api, "LARGE_TOPICS", 0)  # ordinary rounds only compare the version

    async def main() -> None:
        rig = rigged(tmp_path, shown, 0)
        rig.broker.be_master(True)
        route, period_s = MasterRoute(rig.services.settings, rig.broker._outer_api), rig.broker._outer_api.period_s

        async def look(seconds: float) -> int:
            """Returns: how often it has registered again."""
            shown.registered.clear()
            for _ in range(int(seconds)):
                shown.routes[TWO] = {0: OTHER}
                await route.look()
                await trio.sleep(0.5)
                if is_taken:
                    shown.routes[TWO] = {0: OWN}
                    await route.look()
                await trio.sleep(0.5)
            assert set(shown.registered) <= {TWO}
            return len(shown.registered)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.broker._outer_api.run)
            await trio.sleep(period_s / 2)
            assert await look(AT_ONCE) == AT_ONCE
            assert await look(period_s) <= 5
            assert await look(10 * period_s) <= 10
            for route_now in ({1: OTHER}, {0: "10.0.0.9:10911"}):
                await route.look()
                shown.registered.clear()
                shown.routes[TWO] = route_now
                await route.look()
                await trio.sleep(0.1)
                assert shown.registered == [TWO], "the forged one is gone: at once"
            shown.routes[TWO] = {0: OWN}
            await trio.sleep(2 * period_s)
            assert await look(AT_ONCE) == AT_ONCE, "an old dispute is forgotten"
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_its_advertised_addresses_are_its_own(tmp_path: Path) -> None:
    """Fault: A master that advertises another address to the network of its name servers registered again and again."""
    own = "127.0.0.0/8=member-a;outside=shop.example.org:20911"
    shown = Shown({ONE: {0: "member-a:10911"}, TWO: {0: "shop.example.org:20911"}})

    async def main() -> None:
        rig = rigged(tmp_path, shown, 0, rocketpy={"advertised_addresses": own})
        rig.broker.be_master(True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.broker._outer_api.run)
            await trio.sleep(5)
            shown.registered.clear()
            await MasterRoute(rig.services.settings, rig.broker._outer_api).look()
            await trio.sleep(0.1)
            assert shown.registered == []
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def rigged(root: Path, shown: Shown, topics: int, epoch: int | None = 5, **settings: object) -> SlowPathRig:
    rig = SlowPathRig(root, namesrv_addr=f"{ONE};{TWO}", force_register=False, **settings)
    rig.name_servers.invoke = shown.invoke  # type: ignore[method-assign]
    rig.broker.be_member(7, lambda: epoch, lambda: None, rig.name_servers)
    for number in range(topics):
        rig.services.topics.create_if_missing(f"T{number}", queue_nums=1)
    return rig
