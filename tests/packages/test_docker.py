"""The image in a real Docker, and the page about it followed literally (`make test-docker`): the tests of test_image.py
with Docker in place of crun, then what a daemon adds: published ports, health, restarts, networks and Compose."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.client import Message, ProducerOptions
from rocketpy.client.sync import Producer
from tests.support.broker import free_ports
from tests.support.doc_examples import Page
from tests.support.docker import (
    IMAGE,
    PAGE,
    RESTRICTED,
    Checkout,
    address_of,
    built_image,
    checkout,
    docker,
    health_of,
)
from tests.support.first_send import SEND_MAX_S, send
from tests.support.image import Image, run
from tests.support.waiting import wait_until

from .test_image import (  # noqa: F401  collected here, with the image below
    test_a_name_server_whose_volume_is_not_writable_says_so,
    test_a_stop_while_it_starts,
    test_a_volume_that_is_not_writable_is_one_line,
    test_doctor_and_mqadmin_run_without_a_server,
    test_it_serves_is_healthy_and_stops_in_order,
    test_orphans_are_reaped,
    test_the_size,
    volume,
)

TRIES = 10
HEALTHY_S = 60.0
STOP_S = 10.0  # Docker's own limit, before it kills
SMALL = "ROCKETPY_MAPPED_FILE_SIZE_COMMIT_LOG=67108864"
COMPOSE = "deploy/compose"
PROMETHEUS = "http://127.0.0.1:9090"


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    with built_image() as image:
        yield image


@contextmanager
def started(*options: str, arguments: tuple[str, ...] = ()) -> Iterator[str]:
    """A container in the background, with a volume of Docker; yields its id."""
    found = docker("run", "--detach", *RESTRICTED, *options, IMAGE, *arguments)
    try:
        yield found
    finally:
        docker("rm", "--force", "--volumes", found)


def published(port: int, namesrv: int) -> tuple[str, ...]:
    """Options of a broker that programs of this machine reach through published ports."""
    ports = (f"{port}:{port}", f"{port - 2}:{port - 2}", f"{namesrv}:9876")
    variables = (f"ROCKETPY_LISTEN_PORT={port}", "ROCKETPY_BROKER_IP1=127.0.0.1", SMALL)
    return (*(f"--publish=127.0.0.1:{each}" for each in ports), *(f"--env={each}" for each in variables))


def stop(container: str) -> None:
    """As a user does: process 1 ends by itself, and with 0."""
    begun_s = time.monotonic()
    docker("stop", container)
    assert time.monotonic() - begun_s < STOP_S
    assert docker("inspect", "--format", "{{.State.ExitCode}}", container) == "0"


def test_the_time_to_the_first_acknowledged_send(image: Image) -> None:
    """From `docker run` on, through published ports. Other programs only lengthen it: `bench.image` has the median."""
    seconds = []
    for _ in range(TRIES):
        port, namesrv = free_ports()
        begun_s = time.monotonic()
        with started(*published(port, namesrv)):
            assert send(namesrv) == "SEND_OK"
            seconds.append(time.monotonic() - begun_s)
    print(f"seconds from docker run to the first acknowledged send: {', '.join(f'{each:.2f}' for each in seconds)}")
    assert min(seconds) <= SEND_MAX_S


@pytest.mark.parametrize("user", ["10911", "4711", "0"])
def test_messages_survive_a_stop_and_docker_finds_it_healthy(image: Image, user: str) -> None:
    port, namesrv = free_ports()
    options = (f"--user={user}:{user}", "--health-start-interval=1s")
    with started(*options, *published(port, namesrv)) as container:
        assert send(namesrv) == "SEND_OK"
        wait_until(lambda: health_of(container) == "healthy", "its health", HEALTHY_S, pause_s=0.1)
        stop(container)
        docker("start", container)
        assert send(namesrv) == "SEND_OK"
        words = ("mqadmin", "topicStatus", "-n", "127.0.0.1:9876", "-t", "Parcels", "--output", "json")
        rows = [json.loads(line) for line in docker("exec", container, *words).splitlines()]
        assert sum(row["max_offset"] - row["min_offset"] for row in rows) == 2, rows
        stop(container)


def test_clients_outside_and_inside_get_addresses_of_their_own(image: Image) -> None:
    """Of docs/run/addresses.md: what comes by the published port is told the address outside."""
    port, namesrv = free_ports()
    network = docker("network", "create", f"rocketpy-test-{port}")
    variables = ("ROCKETPY_LISTENERS=outside=0.0.0.0:9877", f"ROCKETPY_ADVERTISED_ADDRESSES=outside=127.0.0.1:{port}")
    options = [f"--publish=127.0.0.1:{namesrv}:9877", f"--publish=127.0.0.1:{port}:10911"]
    options += [f"--publish=127.0.0.1:{port - 2}:10909", *(f"--env={each}" for each in (*variables, SMALL))]
    with ExitStack() as stack:
        stack.callback(docker, "network", "rm", network)
        container = stack.enter_context(started("--network", network, *options))
        assert send(namesrv) == "SEND_OK"
        words = ("admin", "sendMessage", "-n", f"{address_of(container)}:9876", "-t", "Parcels", "-p", "inside")
        assert "SEND_OK" in docker("run", "--rm", "--network", network, IMAGE, *words)


# --- the page ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def page(image: Image, tmp_path: Path) -> Iterator[Checkout]:
    with checkout(tmp_path) as made:
        yield made


def test_one_broker(page: Checkout) -> None:
    up, down = Page.read(PAGE).blocks("One broker")
    output = page.run(up)
    assert "SEND_OK" in output and "hello" in output, output
    assert send(9876) == "SEND_OK"
    inside = ("admin", "sendMessage", "-n", "rocketpy:9876", "-t", "Parcels", "-p", "inside")
    assert "SEND_OK" in docker("run", "--rm", "--network", f"{page.project}_default", IMAGE, *inside)
    page.run("docker compose -f single.yaml restart", COMPOSE)
    assert send(9876) == "SEND_OK"
    counted = (
        "docker compose -f single.yaml exec -T rocketpy mqadmin topicStatus -n 127.0.0.1:9876 -t Parcels --output json"
    )
    rows = [json.loads(line) for line in page.run(counted, COMPOSE).splitlines()]
    assert sum(row["max_offset"] - row["min_offset"] for row in rows) == 3
    page.run(down, COMPOSE)


def test_a_cluster(page: Checkout) -> None:
    """Its second half: the master of a group is stopped, and the other one takes over."""
    page.provide("cluster.yaml", "etcd")
    (block,) = Page.read(PAGE).blocks("A cluster")
    page.run(block, COMPOSE)
    for one in ("broker-a-1", "broker-b-1"):
        wait_until(lambda one=one: sorted(roles(page, one)) == ["MASTER", "SLAVE"], "a group in sync", 120, pause_s=1)
    made = "mqadmin updateTopic -n namesrv-1:9876 -c DefaultCluster -t Parcels"
    page.run(f"docker compose -f cluster.yaml exec -T broker-a-1 {made}", COMPOSE)
    name_servers = ";".join(f"{address_of(page.container(name))}:9876" for name in ("namesrv-1", "namesrv-2"))
    with Producer("docker", ProducerOptions(name_servers=name_servers)) as producer:
        results = [producer.send(Message("Parcels", b"%d" % number)) for number in range(40)]
    assert {result.status.name for result in results} == {"SEND_OK"}
    assert {result.queue.broker_name for result in results} == {"broker-a", "broker-b"}
    master = roles(page, "broker-a-1")["MASTER"]
    slave = "broker-a-2" if master == "broker-a-1" else "broker-a-1"
    page.run(f"docker compose -f cluster.yaml stop {master}", COMPOSE)
    wait_until(lambda: roles(page, slave).get("MASTER") == slave, "the other master", 60, pause_s=0.5)


def roles(page: Checkout, member: str) -> dict[str, str]:
    """The services of the members in sync, by their roles."""
    asked = f"docker compose -f cluster.yaml exec -T {member} mqadmin haStatus -f /dev/null --output json"
    try:
        rows = [json.loads(line) for line in page.run(asked, COMPOSE).splitlines()]
    except AssertionError:
        return {}
    return {row["role"]: f"broker-{row['member']}" for row in rows if row.get("in_sync") in (True, "yes")}


def asked(path: str) -> Any:
    """What Prometheus answers."""
    with urllib.request.urlopen(f"{PROMETHEUS}/api/v1/{path}", timeout=10) as answer:
        return json.load(answer)["data"]


def firing() -> set[tuple[str, str]]:
    """The alerts that fire, with the instance of each."""
    labels = [each["labels"] for each in asked("alerts")["alerts"] if each["state"] == "firing"]
    return {(each["alertname"], each.get("instance", "")) for each in labels}


@pytest.mark.parametrize(("name", "stopped"), [("single", "rocketpy"), ("cluster", "broker-b-2")])
def test_prometheus_scrapes_each_server_and_tells_of_one_that_is_stopped(
    page: Checkout, name: str, stopped: str
) -> None:
    """Without Grafana, which has no stand-in: tests/deploy asks Prometheus what its dashboards ask.

    Fault: A broker of Compose that was stopped vanished from the targets of Prometheus, and no alert told of it.
    """
    page.provide("monitoring.yaml", "prometheus")
    if name == "cluster":
        page.provide("cluster.yaml", "etcd")
        page.run("\n".join(Page.read(PAGE).blocks("A cluster")[0].splitlines()[:3]), COMPOSE)  # ha-secret
    (block,) = Page.read(PAGE).blocks("Prometheus and Grafana")
    found = yaml.safe_load((page.root / COMPOSE / f"{name}.yaml").read_text())["services"]
    servers = {service for service, keys in found.items() if keys["image"] == "rocketpy"}
    chosen = " ".join(sorted({*found, "prometheus"}))
    page.run(block.replace("single.yaml", f"{name}.yaml").replace("--wait", f"--wait {chosen}"), COMPOSE)

    def values() -> dict[str, str]:
        return {each["metric"]["instance"]: each["value"][1] for each in asked("query?query=up")["result"]}

    wait_until(lambda: values() == {f"{server}:5557": "1" for server in servers}, "scrapes of all", 120, pause_s=1)
    page.run(f"docker compose -f {name}.yaml stop {stopped}", COMPOSE)
    wait_until(lambda: ("RocketpyDown", f"{stopped}:5557") in firing(), "the alert", 240, pause_s=2)


@pytest.mark.parametrize("files", ["single", "cluster", "single monitoring", "cluster monitoring"])
def test_compose_takes_the_files(page: Checkout, files: str) -> None:
    names = " ".join(f"-f {name}.yaml" for name in files.split())
    page.run(f"docker compose {names} config --quiet", COMPOSE)


def test_a_command_of_the_image(image: Image) -> None:
    assert "Usage: rocketpy broker" in run("bash", "-c", Page.read(PAGE).blocks("The image")[0].splitlines()[1])
