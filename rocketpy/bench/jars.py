"""Jars of brokers in Java, fetched once with Maven into the cache directory.

Short: one command.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rocketpy.errors import ConfigError

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>bench</groupId><artifactId>bench</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


def fetch(lib: Path, artifacts: Sequence[tuple[str, str, str]]) -> None:
    """Fill a directory with jars and all that they depend on. They are downloaded to a temporary directory first, so
    that an interrupted download leaves no partial result.

    Args:
        artifacts: group, name and version of each.
    Raises:
        OSError: there is no Maven.
        ConfigError: it failed; with the end of its message.
    """
    lib.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=lib.parent) as work:
        Path(work, "pom.xml").write_text(POM.format(dependencies="".join(DEPENDENCY.format(*one) for one in artifacts)))
        command = ["mvn", "-q", "dependency:copy-dependencies", f"-DoutputDirectory={work}/lib"]
        done = subprocess.run(command, cwd=work, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            names = ", ".join(f"{name} {version}" for _, name, version in artifacts)
            raise ConfigError(f"Maven cannot fetch {names}: {done.stdout.decode(errors='replace').strip()[-500:]}")
        shutil.rmtree(lib, ignore_errors=True)
        Path(work, "lib").rename(lib)
