"""The name server with TLS, over real sockets on a free port: both kinds of connections, and reload under traffic."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import pytest
import trio

from rocketpy.codes import RequestCode
from rocketpy.config import Machine, load_namesrv_config
from rocketpy.errors import ConfigError, ConnectionLost
from rocketpy.namesrv import NameServer
from rocketpy.remoting.command import RemotingCommand
from rocketpy.tls import client_context
from rocketpy.transport.client import open_remoting_client
from rocketpy.transport.connector import Connector, connect, tls_connector
from tests.support.certificates import Authority, tls_config

QUESTION = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def name_server(directory: Path, *given: dict[str, str]) -> NameServer:
    overrides = {"kvConfigPath": str(directory / "kv.json"), "configStorePath": str(directory / "n.properties")}
    for one in ({"tls.config.file": "/dev/null"}, *given):
        overrides |= one
    settings = load_namesrv_config(None, overrides, {}, machine=Machine(1, "h", lambda: ""))
    return NameServer(attrs.evolve(settings, server=attrs.evolve(settings.server, listen_port=0)))


@contextlib.asynccontextmanager
async def serving(server: NameServer) -> AsyncIterator[str]:
    listeners = await server.listen()
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run, listeners)
        yield f"127.0.0.1:{server.port}"
        nursery.cancel_scope.cancel()


def connector_of(authority: Authority) -> Connector:
    context = client_context(tls_config(authority.trusting()))
    return tls_connector(lambda: context)


async def ask(connector: Connector, address: str) -> None:
    async with open_remoting_client(connector=connector) as client:
        assert (await client.invoke(address, RemotingCommand.request(QUESTION), 30)).code == 0


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
def test_who_is_served(authority: Authority, tmp_path: Path, mode: str) -> None:
    """Holds: network, TLS of servers.
    Fault: A request without TLS to a server that requires it failed without a word about TLS.
    """
    server = name_server(tmp_path, authority.issue().settings(), {"tls.server.mode": mode})

    async def main() -> None:
        async with serving(server) as address:
            await ask(connector_of(authority), address)
            if mode == "permissive":
                await ask(connect, address)
            else:
                async with open_remoting_client() as client:
                    with pytest.raises(ConnectionLost, match="came; if the server requires TLS, use TLS"):
                        await client.invoke(address, RemotingCommand.request(QUESTION), 30)
            found = server.statistics().tls
            assert found is not None and found.handshakes == 1
            assert found.refused == ({} if mode == "permissive" else {"plain": 1})

    trio.run(main)


def test_disabled_has_no_statistics_and_no_duty(tmp_path: Path) -> None:
    server = name_server(tmp_path)
    assert server.statistics().tls is None
    assert not any("certificates" in duty.name for duty in server.duties())


def test_bad_files_are_found_before_it_listens(tmp_path: Path) -> None:
    bad = {"tls.server.mode": "permissive", "tls.server.certPath": "/none", "tls.server.keyPath": "/none"}
    with pytest.raises(ConfigError, match=r"tls\.server\.certPath: cannot use /none"):
        name_server(tmp_path, bad)


def test_certificates_are_replaced_under_traffic(authority: Authority, tmp_path: Path) -> None:
    """Each third file is a bad one. No request fails, on old connections or new ones."""
    used, rounds = authority.issue(), 12
    others = [authority.issue(days=days) for days in (40, 50)]
    server = name_server(tmp_path, used.settings(), {"tls.server.mode": "enforcing"})
    connector, [look] = connector_of(authority), [duty.run for duty in server.duties() if "certificates" in duty.name]
    asked = 0

    async def main() -> None:
        async with serving(server) as address, open_remoting_client(connector=connector) as old:
            first = (await old.channel(address)).connection
            async with trio.open_nursery() as nursery:

                async def traffic() -> None:
                    nonlocal asked
                    while True:
                        await ask(connector, address)
                        assert (await old.invoke(address, RemotingCommand.request(QUESTION), 30)).code == 0
                        asked += 1

                for _ in range(4):
                    nursery.start_soon(traffic)
                for number in range(rounds):
                    if number % 3 == 2:
                        used.certificate.write_text(f"bad {number}")
                    else:
                        used.replace(others[number % 2])
                    until = asked + 4
                    for _ in range(2):  # a change has to stand for an interval
                        await look()
                    while asked < until:
                        await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
            assert (await old.channel(address)).connection == first
        found = server.statistics().tls
        assert found is not None  # the server looks, too: a file may be loaded twice
        assert found.reloads >= rounds * 2 // 3 and found.reload_failures >= rounds // 3
        assert not found.refused or found.refused.keys() == {"closed"}, "the end of the traffic"

    trio.run(main)
