"""The official mqadmin 4.9.7: in a JVM that many commands share, or as an operator starts it.

A JVM for each command takes a second or two of a processor, so most tests share one (admin_tools.py). Tests of what a
JVM reads at its start, accounts and TLS, start one for each command.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import attrs

from . import archives, toolchain
from .admin_tools import JavaTool
from .brokers import AnyBroker
from .java_broker import COMMON_FLAGS, write_logback

TIMEOUT_S = 90.0


@attrs.frozen
class MqAdmin:
    """Commands in the JVM of `tool`, one after the other."""

    tool: JavaTool

    def each(self, broker: AnyBroker, commands: Sequence[Sequence[str]]) -> list[str]:
        """What each of several commands prints."""
        return [self(broker, *words) for words in commands]

    def __call__(self, broker: AnyBroker, command: str, *options: str) -> str:
        """Run one command against the broker's name server; what it printed. It must not complain."""
        printed = self.tool([command, *options, "-n", broker.namesrv])
        output = printed.output + printed.errors
        assert "Exception" not in output, f"mqadmin {command}:\n{output}"
        return printed.output


@attrs.frozen
class NewMqAdmin:
    """A child process for each command. `home` gets its logs and the conf directory that it insists on."""

    home: Path

    def __call__(self, broker: AnyBroker, command: str, *options: str) -> str:
        """Run one command against the broker's name server; what it printed. It must succeed without a complaint."""
        if not self.home.exists():
            self.home.mkdir()
            write_logback(self.home)
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
