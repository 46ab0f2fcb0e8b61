"""Connections between two process trees of a member."""

from __future__ import annotations

import os
import socket

from rocketpy.processes.member.tree import Parked
from rocketpy.reactor.handoff import Accepted, hand_over, take_over


def test_a_connection_outlives_the_process_that_parked_it() -> None:
    parked, (client, server) = Parked(), socket.socketpair()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if hand_over(parked.into, [Accepted(server.fileno(), 1)]) == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    server.close()
    (one,) = take_over(parked.out)
    assert one.listener == 1
    client.sendall(b"x")
    with socket.socket(fileno=one.fd) as taken:
        assert taken.recv(1) == b"x"
    assert set(parked.fds) == {parked.into.fileno(), parked.out.fileno()}
    for end in (client, parked.into, parked.out):
        end.close()
