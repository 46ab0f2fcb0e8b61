"""Tables read by Spark with packages of their formats, and Iceberg's REST catalog: run by `make test-tables`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.conftest import broker, java
from tests.spark.tables import FORMATS, Format
from tests.spark_tables.packages import PACKAGES, jars_of_catalog, jars_of_spark, line_of
from tests.spark_tables.rest_catalog import RestCatalog
from tests.spark_tables.sql import Sql

__all__ = ["broker", "java"]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def reader(java: None) -> str:
    """The version of the Spark that ROCKETPY_READER names, which the Makefile has installed in build/reader-VERSION."""
    version = os.environ.get("ROCKETPY_READER")
    if version is None:
        pytest.skip("no Spark to read tables with: run `make test-tables`")
    return version


@pytest.fixture(scope="session")
def sql(reader: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sql]:
    jars, formats = jars_of_spark(reader), PACKAGES[line_of(reader)]
    started = Sql(jars, formats, ROOT / f"build/reader-{reader}", tmp_path_factory.mktemp("sql"))
    assert started.version == reader
    yield started
    started.stop()


@pytest.fixture(scope="module")
def catalog(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    started = RestCatalog(jars_of_catalog(), tmp_path_factory.mktemp("catalog"))
    yield started
    started.kill()


@pytest.fixture(params=FORMATS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Format:
    return request.param  # type: ignore[no-any-return]  # pytest's Any
