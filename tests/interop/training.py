"""Writes the archives of loaded classes: one for each version of the client, one for the official servers.

`python -m tests.interop.training` prepares everything that tests would wait for.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.support.broker import running_broker

from . import archives, toolchain
from .brokers import create_topic
from .java_broker import running_java_broker
from .programs import JAVA_FLAGS, LANGUAGES, command_of

CLIENTS = ("4.9.8", "5.3.3")
TIMEOUT_S = 120.0


def prepare() -> None:
    """Build and fetch the programs of all clients, and the archives. Raises toolchain.Missing."""
    make_archives()
    for name in LANGUAGES:
        command_of(name, Path())


def make_archives() -> None:
    """Raises toolchain.Missing."""
    directories = {version: toolchain.java_directory(version) for version in CLIENTS}
    server = toolchain.server_directory()
    with toolchain.alone(toolchain.cache_directory() / "archives"):
        for directory in directories.values():
            archives.make(directory, lambda flags, directory=directory: run_client(directory, flags))
        archives.make(server, run_server)


def run_client(directory: Path, flags: Iterable[str]) -> None:
    """Send some messages with the client of this version."""
    with running_broker() as broker, tempfile.TemporaryDirectory() as home:
        create_topic(broker, "archive", 4)
        class_path = archives.class_path(directory / "lib", directory / "interop.jar")
        words = ["java", *JAVA_FLAGS, *flags, f"-Duser.home={home}", "-cp", class_path, "interop.Interop", "send"]
        words += ["--namesrv", broker.namesrv, "--topic", "archive", "--group", "archive", "--prefix", "a"]
        subprocess.run(words, check=True, capture_output=True, timeout=TIMEOUT_S)


def run_server(flags: Iterable[str]) -> None:
    """Start the official broker and stop it in order; its name server is killed and writes nothing."""
    with running_java_broker(flags=list(flags)) as broker:
        broker.stop()


if __name__ == "__main__":
    prepare()
