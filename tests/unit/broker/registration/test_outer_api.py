"""Registration with all name servers: when, what is said, and how it goes on while one of them is slow."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
import trio
import trio.testing

from rocketpy.acl.validator import EXCEPTION
from rocketpy.broker.registration import outer_api
from rocketpy.codes import ResponseCode
from rocketpy.config import BrokerRole
from rocketpy.errors import ConnectFailed, RequestTimeout
from rocketpy.remoting.bodies.topic import TopicConfig
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.namesrv import QueryDataVersionResponseHeader, RegisterBrokerResponseHeader
from tests.support.registrations import TWO, registered
from tests.support.slow_path import SlowPathRig


def test_a_registration_is_whole_and_goes_to_all(tmp_path: Path) -> None:
    """Holds: name server, registration at start and every 30 s; name server, contents of a registration; trap, a
    registration of one topic with the table's version."""
    rig = SlowPathRig(tmp_path, **TWO)
    rig.name_servers.answers["10.0.0.2:9876"] = RemotingCommand.response()
    trio.run(rig.services.registrar.register)
    assert sorted(address for address, _ in rig.name_servers.calls) == ["10.0.0.1:9876", "10.0.0.2:9876"]
    request = rig.name_servers.requests(103)[0]
    assert request.body is not None
    assert request.ext_fields == {
        "brokerName": "broker-a",
        "brokerAddr": "127.0.0.1:10911",
        "clusterName": "DefaultCluster",
        "haServerAddr": "127.0.0.1:10912",
        "brokerId": "0",
        "compressed": "false",
        "bodyCrc32": str(zlib.crc32(request.body) & 0x7FFFFFFF),
    }
    wrapper = registered(request).topic_config_serialize_wrapper
    assert wrapper.topic_config_table == rig.services.topics.topics
    assert wrapper.data_version == rig.services.topics.data_version


def test_a_slave_learns_its_master_by_registering(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path, **TWO, broker_id=2, broker_role=BrokerRole.SLAVE)
    found: list[tuple[str | None, str | None]] = []
    rig.broker.table_copier.on_found = lambda master, ha: found.append((master, ha))
    header = RegisterBrokerResponseHeader(ha_server_addr="10.0.0.9:10912", master_addr="10.0.0.9:10911")
    rig.name_servers.answers["10.0.0.1:9876"] = RemotingCommand.response()  # it knows no master
    trio.run(rig.services.registrar.register)
    assert not found and rig.broker.table_copier.master is None
    rig.name_servers.answers["10.0.0.2:9876"] = RemotingCommand.response(header=header)
    trio.run(rig.services.registrar.register)
    assert found == [("10.0.0.9:10911", "10.0.0.9:10912")] and rig.broker.table_copier.master == "10.0.0.9:10911"
    assert {(request.ext_fields or {})["brokerId"] for request in rig.name_servers.requests(103)} == {"2"}


@pytest.mark.parametrize("body", [None, b'{"table":{"T":"broker-a:4"}}'])
def test_the_topics_of_a_slave_come_from_its_master_alone(tmp_path: Path, body: bytes | None) -> None:
    rig = SlowPathRig(tmp_path, **TWO, broker_id=2, broker_role=BrokerRole.SLAVE)
    version = rig.services.topics.data_version
    rig.name_servers.answers["10.0.0.1:9876"] = RemotingCommand.response(body=body)
    trio.run(rig.services.registrar.register)
    assert rig.services.topics.data_version == version


def test_a_compressed_registration(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path, **TWO, compressed_register=True)
    trio.run(rig.services.registrar.register)
    wrapper = registered(rig.name_servers.requests(103)[0]).topic_config_serialize_wrapper
    assert wrapper.topic_config_table.keys() == rig.services.topics.topics.keys()


def test_a_broker_that_is_not_read_write_publishes_its_own_permission(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path, **TWO, broker_permission=4)
    rig.services.topics.update(TopicConfig(topic_name="T", order=True, topic_sys_flag=1))
    trio.run(rig.services.registrar.register)
    table = registered(rig.name_servers.requests(103)[0]).topic_config_serialize_wrapper.topic_config_table
    assert {topic.perm for topic in table.values()} == {4}
    assert not table["T"].order and rig.services.topics.topics["T"].order


def test_ordered_topics_come_with_the_answer(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path, **TWO)
    rig.services.topics.update(TopicConfig(topic_name="T"))
    answer = RemotingCommand.response(body=b'{"table":{"T":"broker-a:4"}}')
    rig.name_servers.answers = {"10.0.0.1:9876": answer, "10.0.0.2:9876": RemotingCommand.response()}
    trio.run(rig.services.registrar.register)
    assert rig.services.topics.topics["T"].order
    rig.name_servers.answers["10.0.0.1:9876"] = RemotingCommand.response(body=b"{")
    trio.run(rig.services.registrar.register)
    assert rig.services.topics.topics["T"].order, "an unreadable table changes nothing"


def test_a_server_that_is_down_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rig = SlowPathRig(tmp_path, namesrv_addr="10.0.0.1:9876")
    for _ in range(3):
        trio.run(rig.services.registrar.register)
    assert len([r for r in caplog.records if r.levelname == "WARNING"]) == 1


@pytest.mark.parametrize("is_by_account", [True, False])
def test_a_broker_without_an_account_is_told_what_to_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_by_account: bool
) -> None:
    rig = SlowPathRig(tmp_path, namesrv_addr="10.0.0.1:9876")
    remark = EXCEPTION + "No accessKey is configured" if is_by_account else "would exceed brokersMax"
    rig.name_servers.answers["10.0.0.1:9876"] = RemotingCommand.response(ResponseCode.SYSTEM_ERROR, remark)
    trio.run(rig.services.registrar.register)
    assert f"name server 10.0.0.1:9876 refused REGISTER_BROKER: SYSTEM_ERROR {remark}" in caplog.text
    hint = "; set aclCredentialsFile, and name its account in aclBrokerAccounts of the name server"
    assert (hint in caplog.text) is is_by_account


def test_the_log_line_about_a_refusal_is_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Fault: A name server that refused with a long remark wrote 16 MiB to the log at each registration."""
    rig = SlowPathRig(tmp_path, namesrv_addr="10.0.0.1:9876")
    rig.name_servers.answers["10.0.0.1:9876"] = RemotingCommand.response(ResponseCode.SYSTEM_ERROR, "no " * 100_000)
    trio.run(rig.services.registrar.register)
    assert "refused REGISTER_BROKER: SYSTEM_ERROR no no" in caplog.text and len(caplog.text) < 2000


def test_without_name_servers_nothing_is_called(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    trio.run(rig.services.registrar.register)
    assert rig.name_servers.calls == []


def test_again_each_period_and_at_once_when_topics_change(tmp_path: Path) -> None:
    """Holds: name server, registration at start and every 30 s."""
    rig = SlowPathRig(tmp_path, namesrv_addr="10.0.0.1:9876", register_name_server_period=1)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.broker._outer_api.run)
            await trio.sleep(9)
            assert len(rig.name_servers.calls) == 1
            await trio.sleep(2)
            assert len(rig.name_servers.calls) == 2, "a period below 10 s is 10 s"
            rig.services.topics.create_if_missing("T", queue_nums=1)
            rig.services.topics.create_if_missing("U", queue_nums=1)
            await trio.sleep(0.5)
            assert len(rig.name_servers.calls) == 3
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_member_that_becomes_master_is_broker_0_at_once(tmp_path: Path) -> None:
    """Of a group with automatic failover; name servers are told even if they know the version of its topics."""
    rig = SlowPathRig(tmp_path, namesrv_addr="10.0.0.1:9876", force_register=False)
    same = RemotingCommand.response(QueryDataVersionResponseHeader(changed=False))
    rig.name_servers.answers["10.0.0.1:9876"] = same
    rig.broker.be_member(7, lambda: 5, lambda: None, rig.name_servers)

    def ids() -> list[str]:
        return [(request.ext_fields or {})["brokerId"] for request in rig.name_servers.requests(103)]

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.broker._outer_api.run)
            await trio.sleep(1)
            assert ids() == ["7"]
            version = rig.services.topics.data_version
            for is_master in (True, True, False):
                rig.broker.be_master(is_master)
                await trio.sleep(0.1)
            assert ids()[0] == "7" and ids()[-1] == "7" and set(ids()[1:-1]) == {"0"}
            epochs = [(request.ext_fields or {}).get("masterEpoch") for request in rig.name_servers.requests(103)]
            assert epochs[0] is None and epochs[-1] is None and set(epochs[1:-1]) == {"5"}
            assert rig.services.topics.data_version.counter == version.counter + 1
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_master_that_is_not_certain_registers_nothing(tmp_path: Path) -> None:
    """It woke from a pause: another member may be the master, and its own id would take it out of routes."""
    rig = SlowPathRig(tmp_path, namesrv_addr="10.0.0.1:9876", broker_id=7)
    rig.name_servers.answers["10.0.0.1:9876"] = RemotingCommand.response()
    certain: list[int | None] = [None]
    rig.broker.be_member(7, lambda: certain[0], lambda: None, rig.name_servers)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            rig.broker.be_master(True)
            nursery.start_soon(rig.broker._outer_api.run)
            await trio.sleep(100)
            assert rig.name_servers.requests(103) == []
            certain[0] = 5
            await trio.sleep(31)
            (request,) = rig.name_servers.requests(103)
            fields = request.ext_fields or {}
            assert (fields["brokerId"], fields["masterEpoch"]) == ("0", "5")
            certain[0] = None
            nursery.cancel_scope.cancel()
        await rig.broker._outer_api.unregister()
        (request,) = rig.name_servers.requests(104)
        assert (request.ext_fields or {})["brokerId"] == "7", "id 0 may be another's"

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_not_forced_only_servers_with_other_data_are_told(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path, **TWO, force_register=False)
    rig.name_servers.answers = {
        "10.0.0.1:9876": RemotingCommand.response(ext_fields={"changed": "false"}),
        "10.0.0.2:9876": RemotingCommand.response(ext_fields={"changed": "true"}),
    }

    async def main() -> None:
        await rig.broker._outer_api.register(forced=False)

    trio.run(main)
    assert len(rig.name_servers.requests(322)) == 2
    assert [address for address, request in rig.name_servers.calls if request.code == 103] == ["10.0.0.2:9876"]


class Mixed:
    """Name servers by address: `slow` ones accept and never answer, `dead` ones cannot be reached."""

    def __init__(self) -> None:
        self.slow: set[str] = set()
        self.dead: set[str] = set()
        self.late_s: dict[str, float] = {}  # how long an answer takes
        self.registered: list[tuple[float, str, frozenset[str]]] = []  # when, with whom, which topics
        self.in_flight: dict[str, int] = {}

    async def invoke(self, address: str, request: RemotingCommand, timeout_s: float) -> RemotingCommand:
        self.in_flight[address] = self.in_flight.get(address, 0) + 1
        assert self.in_flight[address] == 1, "one request at a time: versions arrive in order"
        try:
            await trio.sleep(timeout_s if address in self.slow else self.late_s.get(address, 0.0))
        finally:
            self.in_flight[address] -= 1
        if address in self.slow:
            raise RequestTimeout("no answer")
        if address in self.dead:
            raise ConnectFailed("nobody listens")
        if request.code == 103:
            wrapper = registered(request).topic_config_serialize_wrapper
            self.registered.append((trio.current_time(), address, frozenset(wrapper.topic_config_table)))
        return RemotingCommand.response()

    def times(self, address: str, topic: str) -> list[float]:
        """When registrations with this topic arrived."""
        return [when for when, at, topics in self.registered if at == address and topic in topics]


HEALTHY, SICK = "10.0.0.1:9876", "10.0.0.2:9876"


@pytest.mark.parametrize("kind", ["slow", "dead"])
def test_registration_goes_on_at_the_speed_of_the_healthy_name_server(tmp_path: Path, kind: str) -> None:
    """Fault: One silent name server delayed registrations and topic creations by 6 s.
    Holds: name server, no traffic between name servers."""
    rig, servers = SlowPathRig(tmp_path, **TWO), Mixed()
    api = rig.broker._outer_api
    api._client = servers
    getattr(servers, kind).add(SICK)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(api.run)
            await trio.sleep(0.01)
            assert servers.times(HEALTHY, "TBW102") and not servers.times(SICK, "TBW102")
            for number in range(20):  # topics are created while a registration with the other is under way
                begin_s = trio.current_time()
                rig.services.topics.create_if_missing(f"T{number}", queue_nums=1)
                await trio.sleep(1.0)
                assert min(servers.times(HEALTHY, f"T{number}")) - begin_s < 0.1
            begin_s = trio.current_time()
            rig.services.topics.create_if_missing("Admin", queue_nums=1)
            await rig.services.registrar.register()
            assert trio.current_time() - begin_s < 0.1, "nobody waits for one that has not answered"
            assert servers.times(HEALTHY, "Admin")
            getattr(servers, kind).clear()
            await trio.sleep(40.0)
            assert servers.times(SICK, "Admin"), "it is registered with once it is back"
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_topic_made_during_the_first_registration_waits_for_one_timeout(tmp_path: Path) -> None:
    """Fault: A topic made while a silent name server had the first registration waited for two timeouts, and failed."""
    rig, servers = SlowPathRig(tmp_path, **TWO), Mixed()
    api = rig.broker._outer_api
    api._client = servers
    servers.slow.add(SICK)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(api.run)
            await trio.sleep(0.01)
            begin_s = trio.current_time()
            rig.services.topics.create_if_missing("Admin", queue_nums=1)
            await rig.services.registrar.register()
            assert trio.current_time() - begin_s < api._timeout_s + 0.1
            assert servers.times(HEALTHY, "Admin")
            servers.slow.clear()
            await trio.sleep(40.0)
            assert servers.times(SICK, "Admin")
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize("is_dead", [False, True])
def test_the_first_round_ends_when_every_name_server_has_answered_or_failed(tmp_path: Path, is_dead: bool) -> None:
    """Fault: The ready line could come before the name server knew the broker."""
    rig, servers = SlowPathRig(tmp_path, **TWO), Mixed()
    api = rig.broker._outer_api
    api._client = servers
    servers.late_s[SICK] = 1.5
    servers.dead |= {SICK} if is_dead else set()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(api.run)
            begin_s = trio.current_time()
            await api.wait_first_round()
            assert servers.times(HEALTHY, "TBW102")
            assert bool(servers.times(SICK, "TBW102")) is not is_dead
            assert trio.current_time() - begin_s == pytest.approx(1.5)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_nobody_waits_longer_for_the_first_round_than_for_an_answer(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path, **TWO)
    api = rig.broker._outer_api

    async def main() -> None:
        begin_s = trio.current_time()
        await api.wait_first_round()  # nothing registers
        assert trio.current_time() - begin_s == rig.services.settings.broker.register_broker_timeout_mills / 1000

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_leaving_waits_a_bounded_time_for_a_slow_name_server(tmp_path: Path) -> None:
    rig, servers = SlowPathRig(tmp_path, **TWO), Mixed()
    api = rig.broker._outer_api
    api._client = servers

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(api.run)
            await trio.sleep(1.0)
            begin_s = trio.current_time()
            await api.unregister()
            assert trio.current_time() - begin_s < 0.1
            await rig.services.registrar.register()
            assert len(servers.registered) == 2, "nothing registers a broker that has left"
            servers.slow.add(SICK)
            begin_s = trio.current_time()
            await api.unregister()
            assert trio.current_time() - begin_s <= 2 * outer_api.UNREGISTER_TIMEOUT_S
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_name_servers_are_looked_up_and_followed(tmp_path: Path) -> None:
    """Holds: cluster, four ways to name the name servers."""
    answers = [[HEALTHY], [SICK]]

    async def ask(url: str) -> list[str]:
        assert url == "http://ns.example:8080/rocketmq/mine"
        await trio.lowlevel.checkpoint()
        return answers.pop(0) if len(answers) > 1 else answers[0]

    rig, servers = (
        SlowPathRig(
            tmp_path,
            fetch_namesrv_addr_by_address_server=True,
            rmq_address_server_domain="ns.example",
            rmq_address_server_sub_group="mine",
        ),
        Mixed(),
    )
    api = rig.broker._outer_api
    api._client, api._ask = servers, ask

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(api.run)
            await trio.sleep(1.0)
            assert [at for _, at, _ in servers.registered] == [HEALTHY]
            await trio.sleep(130.0)
            assert servers.registered[-1][1] == SICK
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
