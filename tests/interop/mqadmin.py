"""The official mqadmin 4.9.7 as a child process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs

from . import archives, toolchain
from .brokers import AnyBroker
from .java_broker import COMMON_FLAGS, write_logback

TIMEOUT_S = 90.0


AT_ONCE = 2  # a command spends its seconds waiting for its own threads to end, so two cost little more than one


@attrs.frozen
class MqAdmin:
    """`home` gets its logs and the conf directory that it insists on."""

    home: Path

    def each(self, broker: AnyBroker, commands: Sequence[Sequence[str]]) -> list[str]:
        """What several commands print that do not depend on one another."""
        self.prepare()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(lambda words: self(broker, *words), commands))

    def prepare(self) -> None:
        if not self.home.exists():
            self.home.mkdir()
            write_logback(self.home)

    def __call__(self, broker: AnyBroker, command: str, *options: str) -> str:
        """Run one command against the broker's name server; what it printed. It must succeed without a complaint."""
        self.prepare()
        server = toolchain.server_directory()
        words = ["java", "-Xmx128m", *COMMON_FLAGS, *archives.flags(server), f"-Duser.home={self.home}"]
        words += ["-cp", archives.class_path(server / "lib")]
        words += ["org.apache.rocketmq.tools.command.MQAdminStartup", command, *options, "-n", broker.namesrv]
        environment = os.environ | {"ROCKETMQ_HOME": str(self.home), "HOME": str(self.home)}
        done = subprocess.run(
            words, cwd=self.home, env=environment, text=True, capture_output=True, timeout=TIMEOUT_S, encoding="utf-8"
        )
        output = done.stdout + done.stderr
        assert done.returncode == 0 and "Exception" not in output, f"mqadmin {command}: {done.returncode}\n{output}"
        return done.stdout


def rows(output: str) -> list[list[str]]:
    """The words of each line that is not empty; headings begin with #."""
    return [line.split() for line in output.splitlines() if line.strip() and not line.startswith("#")]
