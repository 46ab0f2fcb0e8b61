"""Several name servers: one dead, one that accepts and does not answer, one that comes back, and those looked up."""

from __future__ import annotations

import random
from collections.abc import Sequence

import attrs
import pytest

from rocketpy import aio
from rocketpy.client.cluster.name_servers import NameServers
from rocketpy.client.options import ClientOptions
from rocketpy.errors import ClientError, ConnectFailed, ConnectionLost, RequestTimeout, TransportError
from rocketpy.remoting.command import RemotingCommand
from tests.support import loops

pytestmark = pytest.mark.usefixtures("backend")

TIMEOUT_S = 3.0


@attrs.define(eq=False)
class Servers:
    """Name servers by address; what is not said answers at once."""

    dead: set[str] = attrs.field(factory=set)
    slow: set[str] = attrs.field(factory=set)
    lost: set[str] = attrs.field(factory=set)
    asked: list[str] = attrs.field(factory=list)

    async def invoke(self, address: str, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        self.asked.append(address)
        await aio.sleep(0)
        if address in self.dead:
            raise ConnectFailed(f"connect to <{address}> failed")
        if address in self.lost:
            raise ConnectionLost("gone")
        if address in self.slow:
            await aio.sleep(timeout_s)
            raise RequestTimeout(f"no answer within {timeout_s} s")
        return RemotingCommand.response(remark=address)

    async def invoke_all(
        self, address: str, requests: Sequence[RemotingCommand], timeout_s: float
    ) -> list[RemotingCommand]:
        raise AssertionError

    async def invoke_oneway(self, address: str, command: RemotingCommand, timeout_s: float) -> None:
        raise AssertionError


@attrs.define
class Asked:
    took_s: float
    answered_by: str | None


async def ask(name_servers: NameServers) -> Asked:
    begin_s = aio.now_s()
    try:
        answer = await name_servers.invoke(RemotingCommand.request(105), TIMEOUT_S)
    except TransportError:
        return Asked(aio.now_s() - begin_s, None)
    return Asked(aio.now_s() - begin_s, answer.remark)


def run(*calls: NameServers) -> list[Asked]:
    async def main() -> list[Asked]:
        return [await ask(name_servers) for name_servers in calls]

    return loops.run(main)


def test_a_dead_one_costs_nothing() -> None:
    """Holds: client, choice of a name server."""
    servers = Servers(dead={"a:1", "b:1"})
    name_servers = NameServers(servers, ["a:1", "b:1", "c:1"])
    assert run(name_servers, name_servers) == [Asked(0.0, "c:1")] * 2
    assert servers.asked == ["a:1", "b:1", "c:1", "c:1"], "the one that answers stays chosen"


def test_a_slow_one_costs_one_request_its_share_of_the_time() -> None:
    """Fault: A client's first request failed after 3 s beside one silent name server.
    Holds: client, choice of a name server."""
    servers = Servers(slow={"a:1"})
    name_servers = NameServers(servers, ["a:1", "b:1", "c:1"])
    assert run(name_servers, name_servers, name_servers) == [Asked(1.0, "b:1"), Asked(0.0, "b:1"), Asked(0.0, "b:1")]


def test_a_slow_and_a_dead_one_together_leave_the_healthy_one() -> None:
    name_servers = NameServers(Servers(slow={"a:1"}, dead={"b:1"}), ["a:1", "b:1", "c:1"])
    assert run(name_servers) == [Asked(1.0, "c:1")]


def test_when_none_answers_the_request_takes_its_time_and_no_more() -> None:
    [asked] = run(NameServers(Servers(slow={"a:1", "b:1"}), ["a:1", "b:1"]))
    assert asked.answered_by is None and asked.took_s == pytest.approx(TIMEOUT_S)


def test_one_that_comes_back_is_asked_again() -> None:
    servers = Servers(dead={"a:1"})
    name_servers = NameServers(servers, ["a:1", "b:1"])
    run(name_servers)
    servers.dead = {"b:1"}
    assert run(name_servers) == [Asked(0.0, "a:1")]


def test_a_lost_connection_is_told_and_the_next_request_asks_another() -> None:
    name_servers = NameServers(Servers(lost={"a:1"}), ["a:1", "b:1"])
    assert [asked.answered_by for asked in run(name_servers, name_servers)] == [None, "b:1"]


def test_another_list_keeps_the_chosen_server_if_it_is_listed() -> None:
    name_servers = NameServers(Servers(), ["a:1", "b:1"])
    name_servers.replace(["c:1", "a:1", "d:1"], random.Random(1))
    assert name_servers.chosen == "a:1" and sorted(name_servers.addresses) == ["a:1", "c:1", "d:1"]
    name_servers.replace(["e:1"], random.Random(1))
    assert name_servers.chosen == "e:1"


def test_a_request_waits_for_the_address_server() -> None:
    name_servers = NameServers(Servers(), [], looked_up=aio.Event())

    async def main() -> None:
        async with aio.open_nursery() as nursery:

            @nursery.start_soon
            async def find() -> None:
                await aio.sleep(1.0)
                name_servers.replace(["a:1"], random.Random(1))

            assert await ask(name_servers) == Asked(1.0, "a:1")

    loops.run(main)


@pytest.mark.parametrize(("is_looked_up", "reason"), [(False, "or NAMESRV_ADDR"), (True, "has not named any")])
def test_without_any_it_is_said_what_to_do(is_looked_up: bool, reason: str) -> None:
    async def main() -> None:
        name_servers = NameServers(Servers(), [], aio.Event() if is_looked_up else None)
        with pytest.raises(ClientError, match=reason):
            await name_servers.invoke(RemotingCommand.request(105), TIMEOUT_S)

    loops.run(main)


def test_where_the_options_say_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Holds: cluster, four ways to name the name servers."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert ClientOptions().address_server_url is None, "nobody is asked unless a service is named"
    monkeypatch.setenv("ROCKETMQ_NAMESRV_DOMAIN", "ns.example")
    monkeypatch.setenv("ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP", "mine")
    assert ClientOptions(unit_name="u").address_server_url == "http://ns.example:8080/rocketmq/mine-u?nofix=1"
    assert ClientOptions(name_servers="a:1").address_server_url is None
