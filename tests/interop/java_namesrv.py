"""The official name server 4.9.7 alone, with the same handle as tests.support.pair.NameServer."""

from __future__ import annotations

from typing import ClassVar

import attrs

from tests.support.pair import NameServer

from . import archives, toolchain
from .java_broker import COMMON_FLAGS, write_logback


@attrs.define
class JavaNameServer(NameServer):
    """It listens on all addresses. Its home is `store`."""

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
