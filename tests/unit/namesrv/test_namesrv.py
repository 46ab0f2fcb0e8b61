"""The running name server, over real sockets on a free port; time is a mock clock where it matters."""

import math
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketpy.codes import RequestCode
from rocketpy.config import Machine, NamesrvSettings, load_namesrv_config
from rocketpy.errors import ConfigError
from rocketpy.namesrv import Listeners, NameServer, run_namesrv
from rocketpy.namesrv.namesrv import DESCRIPTORS_KEPT, REMOVALS_LOGGED_MAX
from rocketpy.remoting.command import RemotingCommand
from rocketpy.transport.channel import StreamChannel
from rocketpy.transport.client import RemotingClient, open_remoting_client

BODY = b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,"timestamp":1},"topicConfigTable":{"T":{}}}}'
BROKER = {"brokerName": "b", "brokerAddr": "127.0.0.1:1", "clusterName": "C", "brokerId": "0"}


def settings_in(directory: Path, port: int = 0) -> NamesrvSettings:
    """Settings with a free port, which the text form does not allow."""
    overrides = {"kvConfigPath": str(directory / "kv.json"), "configStorePath": str(directory / "n.properties")}
    settings = load_namesrv_config(None, overrides, {}, machine=Machine(1, "h", lambda: ""))
    return attrs.evolve(settings, server=attrs.evolve(settings.server, listen_port=port))


@asynccontextmanager
async def serving(
    directory: Path, server: NameServer | None = None
) -> AsyncIterator[tuple[NameServer, RemotingClient, str]]:
    """A name server, a client, and the address."""
    server = server or NameServer(settings_in(directory))
    listeners = await server.listen()
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run, listeners)
        async with open_remoting_client() as client:
            yield server, client, f"127.0.0.1:{server.port}"
        nursery.cancel_scope.cancel()


async def register(channel: StreamChannel) -> None:
    request = RemotingCommand.request(RequestCode.REGISTER_BROKER, body=BODY, ext_fields=BROKER)
    response = await channel.invoke(request, 5)
    assert response.code == 0


async def becomes(expected: object, actual: Callable[[], object]) -> None:
    """Let the other tasks and the sockets go on until it is so; bounded by turns, not by time."""
    for _ in range(100_000):
        if actual() == expected:
            return
        await trio.lowlevel.checkpoint()
    assert actual() == expected


@pytest.mark.parametrize(("limit", "expected"), [(1024, 1024 - DESCRIPTORS_KEPT), (10, 1), (-1, math.inf)])
def test_open_files_limit_the_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, expected: float
) -> None:
    monkeypatch.setattr("rocketpy.namesrv.namesrv.resource.getrlimit", lambda kind: (limit, -1))

    async def main() -> None:
        async with serving(tmp_path) as (server, _, _):
            assert server._server.connections_max == expected

    trio.run(main)


@pytest.mark.parametrize(("setting", "expected"), [(0, math.inf), (7, 7)])
def test_address_connections_max_is_the_limit_of_the_server(tmp_path: Path, setting: int, expected: float) -> None:
    settings = settings_in(tmp_path)
    settings = attrs.evolve(settings, rocketpy=attrs.evolve(settings.rocketpy, address_connections_max=setting))

    async def main() -> None:
        async with serving(tmp_path, NameServer(settings)) as (server, _, _):
            assert server._server.address_connections_max == expected

    trio.run(main)


def test_a_broker_is_known_as_long_as_its_connection(tmp_path: Path) -> None:
    """Holds: name server, liveness of brokers."""

    async def main() -> None:
        async with serving(tmp_path) as (server, client, address), open_remoting_client() as asker:
            await register(await client.channel(address))
            route = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "T"})
            assert (await asker.invoke(address, route, 5)).code == 0
            statistics = server.statistics()
            assert (statistics.brokers, statistics.clusters, statistics.topics, statistics.connections) == (1, 1, 1, 2)
            assert statistics.requests == {"REGISTER_BROKER": 1, "GET_ROUTEINFO_BY_TOPIC": 1}
            (await client.channel(address)).close()
            await becomes(0, lambda: server.routes.topic_count)
            assert (await asker.invoke(address, route, 5)).code == 17

    trio.run(main)


def test_errors_are_answers(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (_, client, address):
            for code, fields, expected in [
                (9999, {}, (3, " request type 9999 not supported")),
                (RequestCode.PUT_KV_CONFIG, {}, (1, "namespace or key is null")),
                (RequestCode.REGISTER_BROKER, BROKER | {"bodyCrc32": "7"}, (1, "crc32 not match")),
            ]:
                response = await client.invoke(address, RemotingCommand.request(code, ext_fields=fields), 5)
                assert (response.code, response.remark) == expected
            missing = await client.invoke(address, RemotingCommand.request(RequestCode.REGISTER_BROKER), 5)
            assert missing.code == 1
            assert "brokerName is missing" in (missing.remark or "")

    trio.run(main)


async def pass_time(clock: MockClock, seconds: float) -> None:
    """In steps of a second: to whoever looks at the clock, a jump is a standstill."""
    for _ in range(round(seconds)):
        await wait_all_tasks_blocked()
        clock.jump(1)


def test_a_silent_broker_is_dropped_and_its_connection_closed(tmp_path: Path) -> None:
    """Holds: name server, liveness of brokers."""
    clock = MockClock()

    async def main() -> None:
        async with serving(tmp_path) as (server, client, address):
            await register(await client.channel(address))
            await pass_time(clock, 100)
            ask = RemotingCommand.request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
            assert b'"T"' in ((await client.invoke(address, ask, 5)).body or b"")  # not silent, but no registration
            await pass_time(clock, 30)
            await becomes(0, lambda: server.routes.topic_count)
            await becomes((), lambda: client.addresses)

    trio.run(main, clock=clock)


def test_its_own_standstill_is_no_broker_s_silence(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A paused container: brokers go on sending, and find their routes when it wakes.
    Fault: A name server that had stood still for two minutes dropped every broker."""
    clock = MockClock()

    async def main() -> None:
        async with serving(tmp_path) as (server, client, address):
            channel = await client.channel(address)
            await register(channel)
            await pass_time(clock, 20)
            clock.jump(3600)
            await wait_all_tasks_blocked()  # all that was due has been done
            assert server.routes.topic_count == 1
            assert server.statistics().connections == 1
            await register(channel)
            await pass_time(clock, 100)
            assert server.routes.topic_count == 1
            await pass_time(clock, 50)
            await becomes(0, lambda: server.routes.topic_count)

    trio.run(main, clock=clock)
    assert "paused for 35" in caplog.text


def test_removed_brokers_do_not_fill_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: A stranger who registered brokers and closed his connections wrote a log line for each of them."""
    server = NameServer(settings_in(tmp_path))
    monkeypatch.setattr(server.routes, "connection_closed", lambda connection, now_ms: [f"10.0.0.1:{connection}"])

    async def main() -> None:
        for connection in range(3 * REMOVALS_LOGGED_MAX):
            server.connection_closed(connection)

    trio.run(main)
    expected = [f"removed broker 10.0.0.1:{port}: its connection was closed" for port in range(REMOVALS_LOGGED_MAX)]
    assert caplog.messages == expected


def test_an_idle_connection_is_closed(tmp_path: Path) -> None:
    clock = MockClock()

    async def main() -> None:
        async with serving(tmp_path) as (server, client, address):
            await client.channel(address)
            await becomes(1, lambda: server.statistics().connections)
            await wait_all_tasks_blocked()
            clock.jump(120)
            await becomes(0, lambda: server.statistics().connections)

    trio.run(main, clock=clock)


def test_run_until_a_signal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[str] = []

    def started(server: NameServer, listeners: Listeners) -> None:
        seen.append(capsys.readouterr().out)
        os.kill(os.getpid(), signal.SIGTERM)

    assert run_namesrv(settings_in(tmp_path), started) == 0
    assert seen == ["The Name Server boot success. serializeType=JSON\n"]


def test_a_second_signal_while_it_stops_changes_nothing(tmp_path: Path) -> None:
    """`timeout`, `make` and service managers pass on what the whole group gets as well.
    Fault: A stop signal sent twice in a moment, as by `timeout`, made the stop a hard one."""

    def started(server: NameServer, listeners: Listeners) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    assert run_namesrv(settings_in(tmp_path), started) == 0
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_a_table_that_cannot_be_written_is_told_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: A name server with a volume that it cannot write to said nothing before the first change failed."""

    async def start() -> None:
        async with serving(tmp_path / "missing"):
            pass

    trio.run(start)
    assert "cannot be changed" not in caplog.text
    monkeypatch.setattr("rocketpy.namesrv.kv_config.os.access", lambda place, mode: place != tmp_path)
    trio.run(start)
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    path, user = tmp_path / "missing" / "kv.json", os.geteuid()
    assert line == (
        f"key-value table {path} cannot be changed: user {user} may not write to {tmp_path}, whose owner is user {user}"
    )


def test_the_key_value_table_is_logged_now_and_then(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "kv.json").write_text('{"configTable":{"N":{"k":"v"}}}')
    clock = MockClock()

    def lines() -> int:
        return caplog.text.count("key-value table, N: {'k': 'v'}")

    async def main() -> None:
        async with serving(tmp_path):
            for expected, seconds in enumerate((60, 600), start=1):
                await wait_all_tasks_blocked()
                clock.jump(seconds)
                await becomes(expected, lines)

    with caplog.at_level("INFO", logger="rocketpy.namesrv"):
        trio.run(main, clock=clock)


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"^listenPort: 127\.0\.0\.1:{port} is in use by another process;"):
            trio.run(NameServer(settings_in(tmp_path, port)).listen)


def test_an_address_that_is_not_ours(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    settings = attrs.evolve(settings, server=attrs.evolve(settings.server, bind_address="203.0.113.1"))
    with pytest.raises(ConfigError, match=r"^bindAddress: cannot listen on 203\.0\.113\.1:0"):
        trio.run(NameServer(settings).listen)


def test_a_worker_that_is_forked_later_has_the_key_value_table_of_the_moment(tmp_path: Path) -> None:
    """The file was read before the fork, and a restart comes any time later."""
    made_before = NameServer(settings_in(tmp_path))
    fields = {"namespace": "N", "key": "k"}

    async def value(server: NameServer | None, code: RequestCode, **more: str) -> str | None:
        async with serving(tmp_path, server) as (_, client, address):
            request = RemotingCommand.request(code, ext_fields=fields | more)
            return ((await client.invoke(address, request, 5)).ext_fields or {}).get("value")

    trio.run(lambda: value(None, RequestCode.PUT_KV_CONFIG, value="v"))
    assert trio.run(value, made_before, RequestCode.GET_KV_CONFIG) is None
    made_before.refresh()
    assert trio.run(value, made_before, RequestCode.GET_KV_CONFIG) == "v"
    (tmp_path / "kv.json").write_text("{")
    with pytest.raises(ConfigError, match="kvConfigPath"):
        made_before.refresh()


def test_a_damaged_key_value_table_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "kv.json").write_text("{")
    with pytest.raises(ConfigError, match="kvConfigPath"):
        NameServer(settings_in(tmp_path))
