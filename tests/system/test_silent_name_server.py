"""A broker whose name server takes connections and does not answer."""

from __future__ import annotations

import signal
import socket
import subprocess
from pathlib import Path

from tests.support.broker import free_ports
from tests.support.pair import LoneBroker


def test_it_stops_in_order_before_its_first_registration_has_ended(tmp_path: Path) -> None:
    """What waits for the registration must not hold a stop up until it is killed.
    Fault: A broker stopped before its first registration had ended took up to 6 s longer."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        log, namesrv_port = tmp_path / "log", silent.getsockname()[1]
        broker = LoneBroker(
            tmp_path / "store", free_ports()[0], namesrv_port, log, {"registerBrokerTimeoutMills": "180000"}
        )
        with log.open("wb") as output, subprocess.Popen(broker.command(), stdout=output, stderr=output) as process:
            connection, _ = silent.accept()
            with connection:
                process.send_signal(signal.SIGTERM)
                assert process.wait(120) == 0, log.read_text()
