"""The sans-I/O connection: matching, numbering, expiry, end; fed whole and byte by byte."""

import pytest

from rocketpy.errors import ConnectionLost, HeaderInvalid, TooManyRequests
from rocketpy.message.numbers import INT_MAX, INT_MIN
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.connection import Connection, ConnectionState, RequestReceived, ResponseReceived


def events(connection: Connection[str], data: bytes, step: int) -> list[object]:
    found: list[object] = []
    for position in range(0, len(data), step):
        connection.receive_data(data[position : position + step])
        while (event := connection.next_event()) is not None:
            found.append(event)
    return found


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_two_connections_back_to_back(step: int) -> None:
    client: Connection[str] = Connection()
    server: Connection[str] = Connection()
    first = client.send_request(RemotingCommand.request(105), "first", 1.0)
    second = client.send_request(RemotingCommand.request(106, body=b"x"), "second", 1.0)
    asked = events(server, first + second + client.send(RemotingCommand.oneway(34)), step)
    requests = [event.command for event in asked if isinstance(event, RequestReceived)]
    assert [request.code for request in requests] == [105, 106, 34]
    assert requests[2].is_oneway and requests[2].opaque not in (requests[0].opaque, requests[1].opaque)

    push = server.send_request(RemotingCommand.request(307), "push", 1.0)
    answers = [RemotingCommand.response(17).answering(requests[0]), RemotingCommand.response(0).answering(requests[1])]
    back = events(client, server.send(answers[1]) + push + server.send(answers[0]), step)
    assert isinstance(back[0], ResponseReceived) and back[0].token == "second"
    assert isinstance(back[1], RequestReceived) and back[1].command.code == 307
    assert isinstance(back[2], ResponseReceived) and (back[2].token, back[2].command.code) == ("first", 17)
    assert client.in_flight_count == 0 and server.in_flight_count == 1


def test_responses_nobody_waits_for_are_counted_and_dropped() -> None:
    connection: Connection[str] = Connection()
    request = RemotingCommand.request(105)
    connection.send_request(request, "late", 1.0)
    connection.forget(request.opaque)
    response = RemotingCommand.response(0).answering(request).encode()
    assert events(connection, response * 3, 1 << 20) == []
    assert connection.unmatched_count == 3


def test_expiry_by_deadline() -> None:
    connection: Connection[str] = Connection()
    for token, deadline in (("a", 2.0), ("b", 1.0), ("c", 3.0)):
        connection.send_request(RemotingCommand.request(105), token, deadline)
    assert connection.expire(0.5) == []
    assert connection.expire(2.0) == ["a", "b"]
    assert connection.in_flight_count == 1


def test_opaques_wrap_and_skip_what_is_in_flight() -> None:
    connection: Connection[str] = Connection()
    first = RemotingCommand.request(1)
    connection.send_request(first, "x", 0.0)
    connection._next_opaque = INT_MAX
    seen = []
    for _ in range(2):
        request = RemotingCommand.request(1)
        connection.send_request(request, "x", 0.0)
        seen.append(request.opaque)
    assert seen == [INT_MAX, INT_MIN]
    connection._next_opaque = first.opaque
    oneway = RemotingCommand.oneway(1)
    connection.send(oneway)
    assert oneway.opaque == first.opaque + 1


def test_too_many_in_flight() -> None:
    connection: Connection[str] = Connection(in_flight_max=1)
    connection.send_request(RemotingCommand.request(1), "x", 0.0)
    with pytest.raises(TooManyRequests):
        connection.send_request(RemotingCommand.request(1), "y", 0.0)


def test_end_of_stream_gives_back_the_waiting() -> None:
    connection: Connection[str] = Connection()
    connection.send_request(RemotingCommand.request(1), "x", 0.0)
    connection.receive_data(b"")
    assert connection.state is ConnectionState.CLOSED and connection.next_event() is None
    assert connection.close() == ["x"] and connection.close() == []
    with pytest.raises(ConnectionLost):
        connection.send(RemotingCommand.oneway(1))
    with pytest.raises(ConnectionLost):
        connection.send_request(RemotingCommand.request(1), "x", 0.0)


def test_garbage_fails_the_connection_for_good() -> None:
    connection: Connection[str] = Connection()
    connection.receive_data(RemotingCommand.request(34).encode() + bytes.fromhex("0000000400000001"))
    assert isinstance(connection.next_event(), RequestReceived)
    with pytest.raises(HeaderInvalid):
        connection.next_event()
    assert connection.state is ConnectionState.FAILED
    connection.receive_data(RemotingCommand.request(34).encode())
    assert connection.next_event() is None
