"""Topics over TLS: written and read through a TLS proxy before the name server and the broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

import rocketpy.spark
from tests.support.broker import running_broker
from tests.support.tls_proxy import PROXY_HOST, tls_proxy

ROWS = 5000


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The options of a cluster that is reached through the proxy only: its routes name the proxy's address."""
    authority, ca_file = trustme.CA(), tmp_path_factory.mktemp("tls") / "ca.pem"
    authority.cert_pem.write_to_path(ca_file)
    with (
        running_broker({"brokerIP1": PROXY_HOST}) as broker,
        tls_proxy([broker.port, broker.namesrv_port], authority),
    ):
        yield {"nameServer": f"{PROXY_HOST}:{broker.namesrv_port}", "tls": "true", "tlsCaFile": str(ca_file)}


def test_rows_travel_encrypted(spark: Any, encrypted: dict[str, str]) -> None:
    """Holds: network, TLS of clients."""
    rocketpy.spark.register(spark)
    rows = spark.range(ROWS).selectExpr("cast(id as string) as keys", "cast(repeat('x', 500) || id as binary) as body")
    rows.write.format("rocketmq").mode("append").options(**encrypted, topic="Encrypted").save()
    read = spark.read.format("rocketmq").options(**encrypted, topic="Encrypted").load()
    found = sorted((bytes(row.body).decode(), row.keys) for row in read.select("body", "keys").collect())
    assert found == sorted(("x" * 500 + str(n), str(n)) for n in range(ROWS))


def test_who_does_not_trust_the_certificate_is_told_so(spark: Any, encrypted: dict[str, str], tmp_path: Path) -> None:
    rocketpy.spark.register(spark)
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    for file, message in [(other, "its certificate is refused"), (tmp_path / "none", f"cannot use {tmp_path}/none")]:
        options = encrypted | {"tlsCaFile": str(file)}
        with pytest.raises(Exception, match=message):
            spark.read.format("rocketmq").options(**options, topic="Encrypted").load().count()
