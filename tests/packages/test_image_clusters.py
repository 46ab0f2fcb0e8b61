"""The clusters of deploy/compose and deploy/kubernetes (`make test-packages`): containers of the image, each with a
network of its own and the variables of its file, and a real etcd. Docker and Kubernetes themselves are not there."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.client import Message, ProducerOptions
from rocketpy.client.sync import Producer
from rocketpy.errors import RocketError
from tests.support import etcd
from tests.support.ha.network import Network, is_possible, network
from tests.support.image import Container, Image, built_image, container, missing_tools
from tests.support.rules import ROOT
from tests.support.waiting import wait_until

COMPOSE, KUBERNETES = ROOT / "deploy/compose/cluster.yaml", ROOT / "deploy/kubernetes"
USER = 10911
READY_S = 120.0  # until a group has its master and all members are in sync
SMALL = {"ROCKETPY_MAPPED_FILE_SIZE_COMMIT_LOG": "67108864"}
SENDS = 40
SECRET = "a secret of 20 bytes"

pytestmark = pytest.mark.skipif(
    bool(missing_tools()) or not is_possible() or not etcd.is_installed(),
    reason=f"needs root, ip, etcd and: {', '.join(missing_tools())}",
)


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    with built_image() as image:
        yield image


@attrs.frozen
class Service:
    """One container."""

    command: Sequence[str]
    environment: Mapping[str, str]


@contextmanager
def running(
    image: Image, services: Mapping[str, Service], net: Network, directory: Path, secret: str
) -> Iterator[dict[str, Container]]:
    """Start etcd and the services; each knows the others by name.

    Args:
        secret: the path of the secret of the members.
    """
    hosts, key = directory / "hosts", directory / "key"
    lines = [f"{net.address(name)} {name} {name}.{name.rpartition('-')[0] or name}" for name in net.names]
    hosts.write_text("\n".join(["127.0.0.1 localhost", *lines]) + "\n")
    key.write_text(SECRET)
    key.chmod(0o400)
    os.chown(key, USER, USER)
    with ExitStack() as stack:
        stack.enter_context(_etcd(net, directory))
        started = {}
        for name, service in services.items():
            volume = directory / f"volume-{name}"
            volume.mkdir()
            os.chown(volume, USER, USER)
            files = {"/etc/hosts": hosts, secret: key}
            made = container(
                image,
                volume,
                *service.command,
                user=USER,
                environment={**service.environment, **SMALL},
                files=files,
                place=net.command(name, []),
            )
            started[name] = stack.enter_context(made)
        yield started


@contextmanager
def _etcd(net: Network, directory: Path) -> Iterator[None]:
    address = f"http://{net.address('etcd')}:2379"
    words = ["etcd", "--data-dir", str(directory / "etcd"), "--listen-client-urls", address]
    words += ["--advertise-client-urls", address]
    with (directory / "etcd.log").open("wb") as log:
        process = subprocess.Popen(net.command("etcd", words), stdout=log, stderr=log)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def roles_in_sync(member: Container) -> list[str]:
    """The roles of the members in sync, as `mqadmin haStatus` says in the container of one; none if it cannot tell."""
    asked = member.execute("mqadmin", "haStatus", "-f", "/dev/null", "--output", "json")
    rows = [json.loads(line) for line in asked.stdout.splitlines()] if asked.returncode == 0 else []
    return sorted(row["role"] for row in rows if row.get("in_sync") in (True, "yes"))


def send(net: Network, name_servers: Sequence[str], brokers: set[str]) -> None:
    """Send until each of the brokers has acknowledged a message; every send has to be."""
    options = ProducerOptions(name_servers=";".join(f"{net.address(name)}:9876" for name in name_servers))
    with Producer("clusters", options) as producer:
        results = [producer.send(Message("Parcels", b"%d" % number)) for number in range(SENDS)]
    assert {result.status.name for result in results} == {"SEND_OK"}
    assert {result.queue.broker_name for result in results} == brokers


def is_writable(net: Network, name_servers: Sequence[str]) -> bool:
    """Whether name servers know a master."""
    try:
        send(net, name_servers, {"broker-a"})
    except RocketError:
        return False
    return True


def check_group(members: Mapping[str, Container]) -> None:
    first = next(iter(members.values()))

    def is_complete() -> bool:
        for name, member in members.items():
            assert member.process.poll() is None, f"{name}: {member.text()}"
        return roles_in_sync(first) == ["MASTER", *["SLAVE"] * (len(members) - 1)]

    wait_until(is_complete, "a group with all members in sync", READY_S)


def test_the_cluster_of_compose(image: Image, tmp_path: Path) -> None:
    composed: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    with network(*composed["services"]) as net:
        members = composed["networks"]["default"]["ipam"]["config"][0]["ip_range"]
        services = {
            name: Service(
                service["command"],
                {key: str(value).replace(members, net.subnet) for key, value in service.get("environment", {}).items()},
            )
            for name, service in composed["services"].items()
            if service["image"] == "rocketpy"
        }
        with running(image, services, net, tmp_path, "/run/secrets/ha-secret") as started:
            for group in ("broker-a", "broker-b"):
                check_group({name: one for name, one in started.items() if name.startswith(group)})
            words = ("updateTopic", "-n", "namesrv-1:9876", "-c", "DefaultCluster", "-t", "Parcels")
            made = started["broker-a-1"].execute("mqadmin", *words)
            assert made.returncode == 0, made.stdout + made.stderr
            send(net, ["namesrv-1", "namesrv-2"], {"broker-a", "broker-b"})
            for name, one in started.items():
                checked = one.execute("rocketpy", "doctor", "--live")
                assert checked.returncode == 0, name + checked.stdout
            assert {one.stop() for one in started.values()} == {0}


def test_a_group_of_kubernetes(image: Image, tmp_path: Path) -> None:
    """With the members of broker-a, and an upgrade's restart of the master: the others go on."""
    (kustomization,) = yaml.safe_load_all((KUBERNETES / "kustomization.yaml").read_text())
    (own,) = yaml.safe_load_all((KUBERNETES / "broker-a/kustomization.yaml").read_text())
    literals = [pair for one in (kustomization, own) for made in one["configMapGenerator"] for pair in made["literals"]]
    shared = dict(pair.split("=", 1) for pair in literals)
    members = shared["ROCKETPY_HA_MEMBERS"].split(",")
    name_servers = ["namesrv-0", "namesrv-1"]
    secret = "/etc/rocketpy/members/ha-secret"
    with network("etcd", *name_servers, *members) as net:
        services = {name: Service(["namesrv"], {}) for name in name_servers}
        for number, name in enumerate(members, start=1):
            pod = {
                "HA_MEMBER": name,
                "BROKER_ID": str(number),
                "BROKER_IP1": net.address(name),
                "HA_SECRET_FILE": secret,
            }
            services[name] = Service(["broker"], shared | {f"ROCKETPY_{key}": value for key, value in pod.items()})
        with running(image, services, net, tmp_path, secret) as started:
            check_group({name: started[name] for name in members})
            send(net, name_servers, {"broker-a"})
            master = next(name for name in members if "boot success" in started[name].text())
            assert started[master].stop() == 0, started[master].text()
            wait_until(lambda: is_writable(net, name_servers), "the next master")
