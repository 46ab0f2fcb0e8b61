"""The packages of Delta and Iceberg for a version of Spark, and Iceberg's REST catalog, fetched once by Maven.

They go to the cache of tests/interop (ROCKETPY_INTEROP_CACHE). `python -m tests.spark_tables.packages 4.2.1` ends with
one line if there are none for a version.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.interop.toolchain import alone, cache_directory, fingerprint, need, run_build

JARS = Path(__file__).parent / "jars"
PACKAGES = {
    "4.0": {"delta": "4.4.0", "iceberg": "1.11.0"},
    "4.1": {"delta": "4.4.0", "iceberg": "1.12.0"},
    "4.2": {"delta": "4.4.0"},
}
"""The newest versions of the formats that have packages for a line of Spark."""


def line_of(version: str) -> str:
    return ".".join(version.split(".")[:2])


def jars_of_spark(version: str) -> Path:
    """Return a directory of jars.

    Raises:
        KeyError: there are no packages for this line of Spark. toolchain.Missing: no Maven.
    """
    line = line_of(version)
    versions = [f"-D{name}.version={one}" for name, one in PACKAGES[line].items()]
    return _fetched(",".join(PACKAGES[line]), f"-Dspark.version={line}", *versions)


def jars_of_catalog() -> Path:
    """As `jars_of_spark`."""
    return _fetched("catalog")


def _fetched(profile: str, *options: str) -> Path:
    maven = need("mvn")
    target = cache_directory() / "-".join(
        ("tables", *profile.split(","), *(one[2:] for one in options), fingerprint(JARS)[:16])
    )
    with alone(target.parent):
        if not target.exists():
            begun = target.with_name(f"{target.name}.new")
            shutil.rmtree(begun, ignore_errors=True)
            goals = ["-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={begun}"]
            run_build([maven, "-P", profile, *goals, *options], JARS)
            begun.rename(target)
    return target


if __name__ == "__main__" and line_of(sys.argv[1]) not in PACKAGES:
    raise SystemExit(f"Delta and Iceberg have no packages for Spark {sys.argv[1]}: choose one of {', '.join(PACKAGES)}")
