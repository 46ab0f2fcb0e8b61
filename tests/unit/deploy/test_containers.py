"""The files of deploy/ for containers say what the code says: commands, ports, and variables that make sound settings.

`make test-packages` builds the image, and checks all of them with the schemas of Docker and Kubernetes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from rocketpy.cli.doctor import PORTS
from rocketpy.config import BrokerSettings, NamesrvSettings, load_broker_config, load_namesrv_config
from rocketpy.config.environment import PREFIX, variable_of
from rocketpy.config.settings import known_settings
from tests.support.rules import ROOT, enough, hold

DEPLOY = ROOT / "deploy"
COMPOSE, KUBERNETES = DEPLOY / "compose", DEPLOY / "kubernetes"
DOCKERFILE = re.sub(r"\s*\\\n\s*", " ", (DEPLOY / "docker/Dockerfile").read_text())
GROUPS = ("broker-a", "broker-b")
KNOWN = {variable_of(key) for empty in (BrokerSettings(), NamesrvSettings()) for key in known_settings(empty)}
DOCTOR = ["rocketpy", "doctor", "--live"]


def instruction(name: str) -> str:
    """The last one of this name: the second stage is the image."""
    return re.findall(rf"^{name} (.*)", DOCKERFILE, re.MULTILINE)[-1]


def image_variables() -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in instruction("ENV").split())


def documents(path: Path) -> list[dict[str, Any]]:
    return [found for found in yaml.safe_load_all(path.read_text()) if found]


def services(name: str) -> dict[str, dict[str, Any]]:
    """The services of a compose file that run our image."""
    (composed,) = documents(COMPOSE / name)
    return {key: service for key, service in composed["services"].items() if service["image"] == "rocketpy"}


# --- the image --------------------------------------------------------------------------------------------------------


def test_the_image_is_made_in_two_stages_and_its_user_is_a_number() -> None:
    """Kubernetes cannot tell that a named user is not root."""
    assert len(re.findall(r"^FROM ", DOCKERFILE, re.MULTILINE)) == 2
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", instruction("USER"))
    assert instruction("VOLUME") == image_variables()["HOME"]


def test_the_image_runs_rocketpy_below_an_init_and_asks_it_whether_it_lives() -> None:
    assert json.loads(instruction("ENTRYPOINT")) == ["/usr/bin/tini", "--", "rocketpy"]
    assert json.loads(instruction("CMD")) == ["standalone"]
    assert json.loads(instruction("HEALTHCHECK").partition(" CMD ")[2]) == DOCTOR


def test_the_image_exposes_the_ports_of_the_servers() -> None:
    assert set(map(int, instruction("EXPOSE").split())) == set(PORTS)


def test_the_build_gets_the_files_that_it_copies() -> None:
    copied = {
        word for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE) for word in line.split()
    }
    ignored = (DEPLOY / "docker/Dockerfile.dockerignore").read_text().splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} == copied
    hold((name for name in enough(copied, 6, "copied files") if not (ROOT / name).exists()), "copy what is there")


def test_every_variable_is_a_property() -> None:
    files = [path for path in DEPLOY.rglob("*") if path.suffix in {".yaml", ".yml"} or path.name == "Dockerfile"]
    named = ((path, name) for path in files for name in re.findall(rf"\b{PREFIX}[A-Z0-9_]+", path.read_text()))
    found = enough(((path, name) for path, name in named if name != "ROCKETPY_BUILD"), 40, "variables")
    hold((f"{path.relative_to(ROOT)}: {name}" for path, name in found if name not in KNOWN), "name a property")


# --- Docker Compose ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["single.yaml", "cluster.yaml"])
def test_services_have_no_rights_and_write_to_their_volume_only(name: str) -> None:
    (composed,) = documents(COMPOSE / name)
    for service in services(name).values():
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        volumes = [volume.partition(":") for volume in service["volumes"]]
        assert [(volume in composed["volumes"], path) for volume, _, path in volumes] == [(True, "/var/lib/rocketpy")]


@pytest.mark.parametrize("name", ["single.yaml", "cluster.yaml"])
def test_a_start_is_found_healthy_at_once(name: str) -> None:
    """`up --wait` else takes the 30 s to Docker's first check; the check itself is the image's."""
    (start_period,) = re.findall(r"--start-period=(\w+)", instruction("HEALTHCHECK"))
    for service in services(name).values():
        assert service["healthcheck"] == {"start_period": start_period, "start_interval": "1s"}


def test_the_services_of_the_cluster_are_two_groups_and_their_name_servers() -> None:
    found = services("cluster.yaml")
    brokers = {name: service for name, service in found.items() if service["command"] == ["broker"]}
    members: dict[str, list[BrokerSettings]] = {}
    for service in brokers.values():
        settings = broker_settings({key: str(value) for key, value in service["environment"].items()})
        members.setdefault(settings.broker.broker_name, []).append(settings)
        for address in (settings.broker.namesrv_addr or "").split(";"):
            assert found[address.partition(":")[0]]["command"] == ["namesrv"]
    check_groups(members, 2)


def test_nothing_is_published_beyond_this_machine() -> None:
    """A server without accounts serves everybody who reaches it: opening it is a decision of its own."""
    published = re.findall(r"-p (\S*:\d+)", DOCKERFILE)
    for path in COMPOSE.glob("*.yaml"):
        (composed,) = documents(path)
        published += [port for service in composed["services"].values() for port in service.get("ports", ())]
    assert len(published) >= 5
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []


def test_what_comes_by_the_published_port_of_one_broker_is_told_the_address_outside() -> None:
    """Clients in containers, who come by the other port, could not dial it."""
    (service,) = services("single.yaml").values()
    name, _, address = service["environment"]["ROCKETPY_LISTENERS"].partition("=")
    assert f"127.0.0.1:9876:{address.rpartition(':')[2]}" in service["ports"]
    assert service["environment"]["ROCKETPY_ADVERTISED_ADDRESSES"].startswith(f"{name}=")
    assert "ROCKETPY_BROKER_IP1" not in service["environment"]


def test_the_gateway_of_the_cluster_is_no_administrator_and_no_member() -> None:
    (composed,) = documents(COMPOSE / "cluster.yaml")
    (pool,) = composed["networks"]["default"]["ipam"]["config"]
    gateway, subnet = ip_address(pool["gateway"]), ip_network(pool["subnet"])
    assert gateway in subnet and ip_network(pool["ip_range"]).subnet_of(subnet)
    for service in services("cluster.yaml").values():
        for variable in ("ROCKETPY_ADMIN_ADDRESSES", "ROCKETPY_HA_ADDRESSES"):
            allowed = service.get("environment", {}).get(variable, pool["ip_range"])
            assert allowed == pool["ip_range"] and gateway not in ip_network(allowed)


# --- Kubernetes -------------------------------------------------------------------------------------------------------


def stateful_set(path: str) -> dict[str, Any]:
    (found,) = (one for one in documents(KUBERNETES / path) if one["kind"] == "StatefulSet")
    return found


def literals(path: str) -> dict[str, str]:
    """The variables of the config maps that a kustomization makes."""
    (found,) = documents(KUBERNETES / path / "kustomization.yaml")
    return dict(pair.split("=", 1) for one in found["configMapGenerator"] for pair in one["literals"])


def pod_variables(container: dict[str, Any], pod: str, index: int) -> Iterator[tuple[str, str]]:
    fields = {
        "metadata.name": pod,
        "metadata.labels['apps.kubernetes.io/pod-index']": str(index),
        "status.podIP": f"10.1.0.{index}",
    }
    for variable in container["env"]:
        value = variable.get("value")
        yield variable["name"], fields[variable["valueFrom"]["fieldRef"]["fieldPath"]] if value is None else value


def test_the_pods_are_members_of_their_groups() -> None:
    found = stateful_set("broker-group/broker.yaml")["spec"]
    (container,) = found["template"]["spec"]["containers"]
    assert (container["args"], found["podManagementPolicy"]) == (["broker"], "Parallel")
    members: dict[str, list[BrokerSettings]] = {}
    first = found["ordinals"]["start"]
    for group in GROUPS:
        for index in range(first, first + found["replicas"]):
            variables = {**literals("."), **literals(group)}
            variables |= dict(pod_variables(container, f"{group}-{index}", index))
            members.setdefault(group, []).append(broker_settings(variables))
    check_groups(members, 3)
    assert {one.broker.broker_name for group in members.values() for one in group} == set(GROUPS)


@pytest.mark.parametrize("path", ["broker-group/broker.yaml", "namesrv/namesrv.yaml"])
def test_pods_are_restricted_and_asked_whether_they_live(path: str) -> None:
    found = stateful_set(path)["spec"]
    pod, (container,) = found["template"]["spec"], found["template"]["spec"]["containers"]
    assert pod["securityContext"]["runAsNonRoot"] and f"{pod['securityContext']['runAsUser']}:" in instruction("USER")
    own = container["securityContext"]
    assert (own["readOnlyRootFilesystem"], own["capabilities"]) == (True, {"drop": ["ALL"]})
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["exec"]["command"] == DOCTOR
    named = {port["name"]: port["containerPort"] for port in container["ports"]}
    (service,) = (one for one in documents(KUBERNETES / path) if one["kind"] == "Service")
    assert {port["name"]: port["port"] for port in service["spec"]["ports"]} == named
    assert set(named.values()) <= set(PORTS)
    (budget,) = (one for one in documents(KUBERNETES / path) if one["kind"] == "PodDisruptionBudget")
    labels = found["template"]["metadata"]["labels"]
    assert budget["spec"]["selector"]["matchLabels"] == found["selector"]["matchLabels"] == labels


def test_the_name_servers_of_the_brokers_are_pods() -> None:
    found = stateful_set("namesrv/namesrv.yaml")
    name, count = found["metadata"]["name"], found["spec"]["replicas"]
    expected = ";".join(f"{name}-{number}.{name}:9876" for number in range(count))
    assert literals(".")["ROCKETPY_NAMESRV_ADDR"] == expected


@pytest.mark.parametrize("component", ["tls", "accounts"])
def test_components_make_sound_settings(component: str) -> None:
    patches = yaml.safe_load((KUBERNETES / component / "pod.yaml").read_text())
    variables = {patch["value"]["name"]: patch["value"]["value"] for patch in patches if "/env/" in patch["path"]}
    assert broker_settings(variables | {"ROCKETPY_NAMESRV_ADDR": "namesrv-0.namesrv:9876"})
    assert load_namesrv_config(None, environ=image_variables() | variables)
    places = {patch["value"]["mountPath"] for patch in patches if "volumeMounts" in patch["path"]}
    files = [value for value in variables.values() if value.startswith("/")]
    assert enough(files, 2, "files") and all(value.startswith(tuple(places)) for value in files)


# --- both -------------------------------------------------------------------------------------------------------------


def broker_settings(variables: dict[str, str]) -> BrokerSettings:
    """As a container of the image loads them; a mistake is a ConfigError."""
    return load_broker_config(None, environ=image_variables() | variables)


def check_groups(groups: dict[str, list[BrokerSettings]], size: int) -> None:
    assert len(groups) == 2
    for group in groups.values():
        assert [one.broker.broker_id for one in group] == list(range(1, size + 1))
        assert {one.store.ha_members for one in group} == {",".join(one.store.ha_member for one in group)}
        assert len({(one.store.broker_role, one.store.min_in_sync_replicas) for one in group}) == 1
        assert all(one.store.is_automatic and one.store.ha_secret_file for one in group)
