"""The official name server and broker 4.9.7, with the same handle as tests.support.broker.RunningBroker."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import attrs

from tests.support.broker import free_ports
from tests.support.pair import NameServer

from . import archives, toolchain

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 60.0
OPENS = [
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
]
JVM_FLAGS = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
COMMON_FLAGS = [*JVM_FLAGS, *OPENS]
LOGBACK = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>{path}</file><encoder><pattern>%d %p %t - %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="file"/></root>
</configuration>
"""


def write_logback(home: Path) -> None:
    """The servers and mqadmin end at once without these."""
    conf = home / "conf"
    conf.mkdir(exist_ok=True)
    for name in ("namesrv", "broker", "tools"):
        (conf / f"logback_{name}.xml").write_text(LOGBACK.format(path=home / f"{name}-server.log"))


@attrs.define(eq=False)
class JavaBroker:
    """A name server that stays, and a broker that can be stopped, killed and started again on its store."""

    home: Path
    store: Path
    port: int
    namesrv_port: int
    settings: dict[str, str]
    flags: list[str] = attrs.field(factory=list)  # of the JVMs
    processes: dict[str, subprocess.Popen[bytes]] = attrs.field(factory=dict)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def namesrv(self) -> str:
        return f"127.0.0.1:{self.namesrv_port}"

    def start_namesrv(self) -> None:
        (self.home / "namesrv.conf").write_text(
            f"listenPort={self.namesrv_port}\nkvConfigPath={self.home}/kvConfig.json\n"
        )
        self._start("namesrv", ["-Xms64m", "-Xmx256m"], "org.apache.rocketmq.namesrv.NamesrvStartup")

    def start(self) -> None:
        if "namesrv" not in self.processes:
            self.start_namesrv()
        settings = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": "0",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",  # slaves dial it; the address of a network card may change while a test runs
            "namesrvAddr": self.namesrv,
            "listenPort": str(self.port),
            "storePathRootDir": str(self.store),
            "storePathCommitLog": str(self.store / "commitlog"),
            "enablePropertyFilter": "true",
            "warmMapedFileEnable": "false",
            "transientStorePoolEnable": "false",
        } | self.settings
        (self.home / "broker.conf").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        heap = ["-Xms128m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m"]
        self._start("broker", heap, "org.apache.rocketmq.broker.BrokerStartup")

    def _start(self, name: str, heap: list[str], main: str) -> None:
        server = toolchain.server_directory()
        command = ["java", "-cp", archives.class_path(server / "lib"), f"-Duser.home={self.home}"]
        command += [*heap, *COMMON_FLAGS, *archives.flags(server), *self.flags]
        command += [main, "-c", str(self.home / f"{name}.conf")]
        log = self.home / f"{name}.log"
        with log.open("wb") as output:
            self.processes[name] = process = subprocess.Popen(
                command,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | {"ROCKETMQ_HOME": str(self.home), "HOME": str(self.home)},
                start_new_session=True,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while b"boot success" not in log.read_bytes():
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the Java {name} did not start ({process.poll()}):\n{self.text()}")
            time.sleep(0.02)

    def text(self) -> str:
        return "".join(f"{path.name}:\n{path.read_text(errors='replace')[-3000:]}" for path in self.home.glob("*.log"))

    def stop(self) -> int:
        """Stop the broker cleanly; its exit status (143: ended by SIGTERM, as the JVM says it)."""
        process = self.processes.pop("broker")
        process.send_signal(signal.SIGTERM)
        return process.wait(STOP_TIMEOUT_S)

    def kill_all(self) -> None:
        """The broker dies at once; the name server stays, as it would on another host."""
        if process := self.processes.pop("broker", None):
            process.kill()
            process.wait(STOP_TIMEOUT_S)
            self._remove_empty_files()

    def _remove_empty_files(self) -> None:
        """A kill while the broker makes a file leaves it with 0 bytes, and the next start of the broker refuses it."""
        for path in self.store.glob("**/[0-9]*"):
            if path.is_file() and not path.stat().st_size:
                path.unlink()

    def close(self) -> None:
        self.kill_all()
        if process := self.processes.pop("namesrv", None):
            process.kill()
            process.wait(STOP_TIMEOUT_S)


@contextlib.contextmanager
def running_java_broker(
    settings: dict[str, str] | None = None, *, store: Path | None = None, flags: Sequence[str] = ()
) -> Iterator[JavaBroker]:
    """A started official name server and broker, with small files; ended here. Raises toolchain.Missing."""
    toolchain.server_directory()
    with tempfile.TemporaryDirectory(prefix="rocketpy-java-") as directory:
        home = Path(directory)
        write_logback(home)
        port, namesrv_port = free_ports()
        small = {"mappedFileSizeCommitLog": str(64 << 20), "maxHashSlotNum": "5000", "maxIndexNum": "20000"}
        broker = JavaBroker(home, store or home / "store", port, namesrv_port, small | (settings or {}), list(flags))
        try:
            broker.start()
            yield broker
        finally:
            broker.close()


@attrs.define
class JavaNameServer(NameServer):
    """The official name server alone, with the handle of NameServer, on all addresses. Its home is `store`."""

    START_S: ClassVar[float] = 180.0  # on a busy machine a JVM takes a minute

    def command(self) -> list[str]:
        """Raises toolchain.Missing."""
        server, home = toolchain.server_directory(), self.store
        home.mkdir(exist_ok=True)
        write_logback(home)
        conf = home / "namesrv.conf"
        conf.write_text(f"listenPort={self.namesrv_port}\nkvConfigPath={home}/kvConfig.json\n")
        words = ["env", f"ROCKETMQ_HOME={home}", f"HOME={home}", "java", f"-Duser.home={home}"]
        words += ["-cp", archives.class_path(server / "lib"), *archives.flags(server)]
        words += ["-Xms64m", "-Xmx256m", *COMMON_FLAGS, "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(conf)]
        return words
