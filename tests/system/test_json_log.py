"""With logFormat=json every line of every process is an object, and a request has the same names in all of them."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import Any

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the broker needs the compiled core")

from rocketpy.remoting.command import RemotingCommand
from tests.support.broker import RunningBroker, running_broker
from tests.support.kills import wait_for, wait_until_gone
from tests.support.wire import Wire

SETTINGS = {"logFormat": "json", "requestLogSample": "1", "logLevel": "INFO"}
GET_BROKER_RUNTIME_INFO, GET_ROUTE = 28, 105


def objects(broker: RunningBroker) -> list[dict[str, Any]]:
    """All lines of the log; the ready lines go to standard output, which the test has in the same file."""
    return [json.loads(line) for line in broker.text().splitlines() if line.startswith("{")]


def served(broker: RunningBroker) -> list[dict[str, Any]]:
    """The lines about the two requests of the test; brokers register meanwhile."""
    names = ("GET_BROKER_RUNTIME_INFO", "GET_ROUTEINFO_BY_TOPIC")
    return [found for found in objects(broker) if any(f"request {name} " in found["message"] for name in names)]


def test_every_line_is_an_object_and_names_its_request() -> None:
    with running_broker(SETTINGS) as broker:
        with Wire.open(broker.port) as wire:
            assert wire.ask(RemotingCommand.request(GET_BROKER_RUNTIME_INFO)).code == 0
        with Wire.open(broker.namesrv_port) as wire:
            assert wire.ask(RemotingCommand.request(GET_ROUTE, ext_fields={"topic": "absent"})).code == 17
        wait_for(lambda: len(served(broker)) == 2, broker)
        of_broker, of_name_server = served(broker)
        assert (of_broker["process"], of_name_server["process"]) == ("manager", "namesrv")
        assert (of_broker["opaque"], of_name_server["opaque"], of_name_server["topic"]) == (1, 1, "absent")
        assert int(of_broker["connection"], 16) > 0 and "topic" not in of_broker

        pid = broker.workers()["manager"]
        os.kill(pid, signal.SIGKILL)
        wait_until_gone(broker, "manager", pid)
        wait_for(lambda: any(found["event"] == "worker ... ...; restarting ..." for found in objects(broker)), broker)
        assert not re.search(r"^[^{].*(INFO|WARNING|ERROR|Traceback)", broker.text(), re.MULTILINE), "all are objects"
        fields = {"time", "level", "process", "pid", "logger", "event", "message"}
        assert all(fields <= found.keys() for found in objects(broker))
