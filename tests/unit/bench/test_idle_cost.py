"""Idle clients: their cost is held against bars."""

from __future__ import annotations

import json
import socket
import struct
import threading

import attrs
import pytest

from rocketpy.bench import idle
from rocketpy.bench.idle import Crowd, Tally
from rocketpy.bench.idle_cost import CPU_PERCENT_MAX, USER_BYTES_MAX, IdleCost

COST = IdleCost(
    clients=3_000,
    seconds=60.0,
    user_bytes=USER_BYTES_MAX,
    kernel_bytes=100,
    cpu_percent=CPU_PERCENT_MAX,
    tally=Tally(heartbeats=6_000, latencies_ms=[0.5, 1.5]),
    grown_kib={"manager": 2048, "selector 0": 1024, "store": 1},
)


def test_figures() -> None:
    assert COST.cpu_us_per_heartbeat == pytest.approx(2_000), "0.2 s for 100 heartbeats a second"
    text = "\n".join(COST.lines)
    assert "manager 2.0, selector 0 1.0)" in text


def test_bars_count_if_they_are_asked_for() -> None:
    assert COST.faults(is_strict=True) == []
    over = attrs.evolve(COST, user_bytes=USER_BYTES_MAX + 1, cpu_percent=CPU_PERCENT_MAX + 1)
    assert over.faults(is_strict=False) == [] and len(over.faults(is_strict=True)) == 2
    lost = attrs.evolve(COST, tally=Tally(refused=1, lost=2))
    assert lost.faults(is_strict=False) == ["1 heartbeats were refused", "2 connections were lost"]


def test_clients_that_repeat_their_heartbeats_do_not_stand_in_for_those_that_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fault: Answers to repeated heartbeats counted as clients that had entered, so the measurement began during the
    storm of the first ones."""
    answers_before = 40  # more than come in one turn of the loop
    monkeypatch.setattr(idle, "INTERVAL_S", 0.01)
    header = json.dumps({"flag": 1, "code": 0}).encode()
    answer = struct.pack(">ii", 4 + len(header), len(header)) + header
    answered: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as first, listener.accept()[0] as second:
                while first.recv(65_536):
                    first.sendall(answer)
                    answered.append(0)
                    if len(answered) == answers_before:
                        second.sendall(answer)
                        answered.append(1)

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        crowd = Crowd(listener.getsockname()[1], first=0, count=2)
        crowd.connect()
        crowd.wait_answers()
        assert 1 in answered
        crowd.close()
        server.join(10)
    assert not server.is_alive()
