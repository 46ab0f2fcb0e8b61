"""Jars of brokers in Java, fetched once with Maven into the cache directory.

Short: one command.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

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
        CalledProcessError: it failed.
    """
    lib.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=lib.parent) as work:
        Path(work, "pom.xml").write_text(POM.format(dependencies="".join(DEPENDENCY.format(*one) for one in artifacts)))
        command = ["mvn", "-q", "dependency:copy-dependencies", f"-DoutputDirectory={work}/lib"]
        subprocess.run(command, cwd=work, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        shutil.rmtree(lib, ignore_errors=True)
        Path(work, "lib").rename(lib)
