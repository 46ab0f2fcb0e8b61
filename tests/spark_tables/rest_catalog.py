"""Iceberg's REST catalog, as its project makes it for tests of other programs, in a process that tests kill."""

from __future__ import annotations

import os
import subprocess
import urllib.request
from pathlib import Path

from tests.support.etcd import free_ports
from tests.support.waiting import wait_until

STARTS_S = 300.0
SERVER = "org.apache.iceberg.rest.RESTCatalogServer"


class RestCatalog:
    """The server, with its tables in an SQLite file. `uri` stays the same over starts."""

    def __init__(self, jars: Path, directory: Path) -> None:
        (self._port,) = free_ports(1)
        self._jars, self._directory = jars, directory
        self.uri = f"http://127.0.0.1:{self._port}/"
        self.start()

    @property
    def options(self) -> dict[str, str]:
        """Options of `--storage-option`; Spark calls its catalogs' properties the same."""
        return {"type": "rest", "uri": self.uri}

    def start(self) -> None:
        environment = os.environ | {
            "CATALOG_REST_PORT": str(self._port),
            "CATALOG_URI": f"jdbc:sqlite:{self._directory}/catalog.db",
            "CATALOG_WAREHOUSE": str(self._directory / "warehouse"),
            "CATALOG_CLIENTS": "1",  # SQLite refuses the second one that writes
        }
        command = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", f"{self._jars}/*", SERVER]
        with (self._directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            wait_until(self._answers, "Iceberg's REST catalog", STARTS_S)
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self._directory / "server.log").read_text()
        try:
            with urllib.request.urlopen(f"{self.uri}v1/config", timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:  # refused, or no answer in time
            return False
