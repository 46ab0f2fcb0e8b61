"""Connections for bulk pulls: signed requests, answers as stored, and which connections are kept."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from rocketpy.client.cluster.pull_connections import PullConnection, PullConnections
from rocketpy.client.results import PullStatus
from rocketpy.codes import ResponseCode
from rocketpy.errors import BrokerError, ConnectionLost
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.connection import Connection, RequestReceived
from rocketpy.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from rocketpy.remoting.signature import Credentials, is_signed

WAIT_S = 30.0


class Broker:
    """Answers each pull with the queue offset as body; a negative queue id is refused."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.requests: list[RemotingCommand] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            end = self.listener.accept()[0]
            with end:
                if not self.serves(end):
                    return

    def serves(self, end: socket.socket) -> bool:
        """Serve one connection. Returns False if it was the last one: it asked for nothing."""
        protocol: Connection[None] = Connection()
        asked = len(self.requests)
        with suppress(ConnectionError):  # closed before the answers were read
            while data := end.recv(65_536):
                protocol.receive_data(data)
                while isinstance(event := protocol.next_event(), RequestReceived):
                    self.requests.append(event.command)
                    end.sendall(answer_to(event.command).answering(event.command).encode())
        return len(self.requests) > asked

    def close(self) -> None:
        with socket.create_connection(self.listener.getsockname()):
            pass
        self._threads[0].join(WAIT_S)
        assert not self._threads[0].is_alive()
        self.listener.close()


def answer_to(request: RemotingCommand) -> RemotingCommand:
    fields = request.ext_fields or {}
    if int(fields["queueId"]) < 0:
        return RemotingCommand.response(ResponseCode.NO_PERMISSION, "no")
    begin = int(fields["queueOffset"])
    header = PullMessageResponseHeader(
        suggest_which_broker_id=0, next_begin_offset=begin + 1, min_offset=0, max_offset=100
    )
    return RemotingCommand.response(header=header, body=b"%d" % begin)


def header(offset: int, queue_id: int = 0) -> PullMessageRequestHeader:
    return PullMessageRequestHeader(
        consumer_group="g", topic="T", queue_id=queue_id, queue_offset=offset, max_msg_nums=1, sys_flag=0
    )


@pytest.fixture
def broker() -> Iterator[Broker]:
    found = Broker()
    yield found
    found.close()


def bodies(connection: PullConnection, offsets: list[int]) -> list[bytes]:
    numbers = connection.ask([header(offset) for offset in offsets])
    return [connection.pulled(number).body for number in numbers]


def test_pulls_are_signed_and_answered(broker: Broker) -> None:
    connections = PullConnections(WAIT_S, Credentials("access", "secret"))
    connection = connections.take(broker.address, WAIT_S)
    (number, refused) = connection.ask([header(7), header(8, -1)])
    pulled = connection.pulled(number)
    assert (pulled.status, pulled.next_begin_offset, pulled.body) == (PullStatus.FOUND, 8, b"7")
    with pytest.raises(BrokerError, match="no"):
        connection.pulled(refused)
    connections.give_back(connection)
    connections.close()
    assert all(is_signed(request, "secret") for request in broker.requests)


def test_a_connection_is_used_by_one_reader_after_the_other(broker: Broker) -> None:
    connections = PullConnections(WAIT_S, None)
    first = connections.take(broker.address, WAIT_S)
    assert bodies(first, [1, 2]) == [b"1", b"2"]
    connections.give_back(first)
    second = connections.take(broker.address, WAIT_S)
    assert second is first and bodies(second, [3]) == [b"3"]
    connections.give_back(second)
    connections.close()
    with pytest.raises(ConnectionLost):
        first.ask([header(4)])


def test_a_connection_with_answers_under_way_is_closed(broker: Broker) -> None:
    """The next reader never gets the answers of the one before."""
    connections = PullConnections(WAIT_S, None)
    first = connections.take(broker.address, WAIT_S)
    first.ask([header(1)])
    connections.give_back(first)
    second = connections.take(broker.address, WAIT_S)
    assert second is not first and bodies(second, [2]) == [b"2"]
    connections.close()
    connections.give_back(second)
    with pytest.raises(ConnectionLost):
        second.ask([header(3)])
