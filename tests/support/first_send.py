"""From the start of a container to the first send that its broker acknowledges."""

from __future__ import annotations

import os
import socket
import time
from contextlib import AbstractContextManager
from pathlib import Path

from rocketpy.client import Message, ProducerOptions
from rocketpy.client.sync import Producer
from rocketpy.errors import RocketError

from .broker import free_ports
from .image import Container, Image, container

SEND_MAX_S = 2.0  # from the start of the container to the first acknowledged send
USER = 4711  # nobody's, and not that of the image


def ports() -> tuple[int, int, dict[str, str]]:
    """Ports of the broker and of the name server, and the variables by which a standalone broker takes them."""
    port, namesrv = free_ports()
    return (
        port,
        namesrv,
        {
            "ROCKETPY_LISTEN_PORT": str(port),
            "ROCKETPY_BROKER_IP1": "127.0.0.1",
            "ROCKETPY_METRICS_PORT": "-1",
            "ROCKETPY_MAPPED_FILE_SIZE_COMMIT_LOG": "67108864",
        },
    )


def standalone(
    image: Image, volume: Path, namesrv: int, variables: dict[str, str]
) -> AbstractContextManager[Container]:
    return container(image, volume, "standalone", "--namesrv-port", str(namesrv), user=USER, environment=variables)


def send(namesrv: int) -> str:
    """Send until a broker acknowledges it."""
    due_s = time.monotonic() + 30
    while True:
        try:
            with socket.create_connection(("127.0.0.1", namesrv), 1):
                pass
            with Producer("image", ProducerOptions(name_servers=f"127.0.0.1:{namesrv}")) as producer:
                return producer.send(Message("Parcels", b"from outside")).status.name
        except (OSError, RocketError):
            assert time.monotonic() < due_s, "nobody acknowledged a message"
            time.sleep(0.01)


def seconds_to_first_send(image: Image, directory: Path, tries: int) -> list[float]:
    """Start the image so often, each time on an empty volume in `directory`, and send.

    Raises:
        AssertionError: a send was not stored, or a broker did not stop in order.
    """
    seconds = []
    for number in range(tries):
        volume = directory / f"volume-{number}"
        volume.mkdir()
        os.chown(volume, USER, USER)
        _, namesrv, variables = ports()
        begun_s = time.monotonic()
        with standalone(image, volume, namesrv, variables) as running:
            assert send(namesrv) == "SEND_OK"
            seconds.append(time.monotonic() - begun_s)
            assert running.stop() == 0, running.text()
    return seconds
