"""A client that signs: of brokers, which run under trio alone."""

from __future__ import annotations

import trio

from rocketpy.remoting.abc import Channel
from rocketpy.remoting.answers import RequestTable
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.signature import Credentials, is_signed
from rocketpy.transport.client import open_remoting_client
from rocketpy.transport.server import RemotingServer
from rocketpy.transport.signing import SigningClient
from rocketpy.transport.streams import listening_port, open_listeners


class Service:
    """Answers with the name of the secret that has signed."""

    async def process(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        signers = [name for name in ("first", "second") if is_signed(request, name)]
        return RemotingCommand.response(0, " ".join(signers), body=request.body)


def test_each_request_is_signed_with_the_credentials_of_its_time() -> None:
    secret = "first"

    async def main() -> None:
        nonlocal secret
        server = RemotingServer(RequestTable({}, default=Service()))
        listeners = await open_listeners("127.0.0.1", 0)
        async with trio.open_nursery() as nursery, open_remoting_client() as plain:
            await nursery.start(server.run, listeners)
            address = f"127.0.0.1:{listening_port(listeners[0])}"
            client = SigningClient(plain, lambda: Credentials("broker-a", secret))
            request = RemotingCommand.request(103, body=b"topics")
            answer = await client.invoke(address, request, 30)
            assert (answer.remark, answer.body) == ("first", b"topics")
            secret = "second"  # the same command again, as after a lost connection
            several = [RemotingCommand.request(103), request]
            assert [one.remark for one in await client.invoke_all(address, several, 30)] == ["second"] * 2
            assert (await plain.invoke(address, RemotingCommand.request(103), 30)).remark == ""
            nursery.cancel_scope.cancel()

    trio.run(main)
