"""The cluster as an operator has it: kubectl, an etcd for the brokers, volumes, images, a copy of deploy/kubernetes.

images      built by buildah (tests/support/image.py) and imported; they count as pulled, with the names of a registry
etcd        one member on the node; the Service etcd in the namespace etcd leads there, so its address is the manifests'
volumes     directories of the node, as `local` volumes, in the default class
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import yaml

from tests.support.doc_examples import Page
from tests.support.image import IMAGE, build_image, buildah
from tests.support.rules import ROOT
from tests.support.waiting import wait_until

from .node import ADDRESS, BROKERS_ETCD_PORT, NAME, PAUSE, Node, running_node
from .programs import PROGRAMS

PAGE = "run/kubernetes.md"
MANIFESTS = "deploy/kubernetes"
NAMESPACE = "rocketpy"
MEMBERS = 3
VOLUMES = 14
COMMAND_S = 900.0
IN_SYNC_S = 240.0
# Two groups ask for three processors, which a test machine need not have.
LESS = """
patches:
  - target: {kind: StatefulSet}
    patch: |
      - {op: replace, path: /spec/template/spec/containers/0/resources/requests/cpu, value: 20m}
"""
ADMINISTERED = "#- ROCKETPY_ADMIN_ADDRESSES="


@attrs.define(eq=False)
class Cluster:
    """A node, and the commands of the page."""

    node: Node
    checkout: Path  # with deploy/kubernetes alone
    commands: Path  # the directory of kubectl

    @property
    def kustomization(self) -> Path:
        return self.checkout / MANIFESTS / "kustomization.yaml"

    @property
    def image(self) -> str:
        (found,) = yaml.safe_load(self.kustomization.read_text())["images"]
        return f"{found['newName']}:{found['newTag']}"

    def run(self, commands: str) -> str:
        """Run commands of the page. Returns: their output. Raises: AssertionError: one of them failed."""
        done = self.attempt_commands(commands)
        assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}\n{self.state()}"
        return done.stdout

    def kubectl(self, *words: object) -> str:
        done = self.attempt(self.commands / "kubectl", *words)
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}\n{self.state()}"
        return done.stdout

    def attempt_commands(self, commands: str) -> subprocess.CompletedProcess[str]:
        """Run commands of the page that may fail."""
        return self.attempt("bash", "-exo", "pipefail", "-c", f'PATH="{self.commands}:$PATH"\n{commands}')

    def attempt(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run a command that may fail."""
        self.node.check()
        command = [str(word) for word in words]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=COMMAND_S, cwd=self.checkout
        )

    def get(self, *words: object) -> Any:
        return json.loads(self.kubectl("-n", NAMESPACE, "get", *words, "-o", "json"))

    def apply(self, *documents: Mapping[str, Any]) -> None:
        (self.checkout / "documents.yaml").write_text(yaml.safe_dump_all(documents))
        self.kubectl("apply", "-f", "documents.yaml")

    def state(self) -> str:
        """Return what an operator looks at when something fails."""
        words = ([self.commands / "kubectl", "get", kind, "-A", "-o", "wide"] for kind in ("pods", "events"))
        return "\n".join(self.attempt(*each).stdout[-6000:] for each in words)

    def execute(self, pod: str, *words: object) -> str:
        return self.kubectl("-n", NAMESPACE, "exec", pod, "--", *words)

    def roles(self, group: str) -> dict[str, str]:
        """Return the roles of the members in sync, as one that answers says: `mqadmin haStatus` in its pod."""
        words = ("mqadmin", "haStatus", "-f", "/dev/null", "--output", "json")
        for number in range(1, MEMBERS + 1):
            kubectl = (self.commands / "kubectl", "-n", NAMESPACE, "exec", f"{group}-{number}", "--")
            asked = self.attempt(*kubectl, *words)
            if asked.returncode == 0:
                rows = [json.loads(line) for line in asked.stdout.splitlines()]
                return {row["member"]: row["role"] for row in rows if row.get("in_sync") in (True, "yes")}
        return {}

    def make_topic(self, name: str) -> None:
        words = ("-n", "namesrv-0.namesrv:9876", "-c", "DefaultCluster", "-t", name)
        self.execute("broker-a-1", "mqadmin", "updateTopic", *words)

    def master(self, group: str) -> str:
        """Return the name of the pod that is master; empty: there is none."""
        return next((name for name, role in self.roles(group).items() if role == "MASTER"), "")

    def wait_in_sync(self, *groups: str) -> None:
        """Return when all members of the groups are in sync behind a master."""
        for group in groups:
            wait_until(
                lambda group=group: sorted(self.roles(group).values()) == ["MASTER", "SLAVE", "SLAVE"],  # type: ignore[misc]
                f"{group} in sync",
                IN_SYNC_S,
                pause_s=1,
            )

    def wait_ready(self) -> None:
        for name in self.get("statefulset")["items"]:
            self.kubectl("-n", NAMESPACE, "rollout", "status", f"statefulset/{name['metadata']['name']}")


@contextlib.contextmanager
def running_cluster(directory: Path) -> Iterator[Cluster]:
    """Start a node, give it what the page takes for granted, and copy the manifests."""
    build_image()
    with running_node(directory / "node") as node:
        commands = directory / "bin"
        commands.mkdir()
        kubectl = commands / "kubectl"
        entered = f"nsenter --net=/proc/{node.pid}/ns/net"
        kubectl.write_text(
            f'#!/bin/sh\nexec {entered} env KUBECONFIG={node.directory}/admin.conf {PROGRAMS}/kubectl "$@"\n'
        )
        kubectl.chmod(0o755)
        shutil.copytree(ROOT / MANIFESTS, directory / "checkout" / MANIFESTS)
        cluster = Cluster(node, directory / "checkout", commands)
        text = cluster.kustomization.read_text()
        assert ADMINISTERED in text
        cluster.kustomization.write_text(text.replace(ADMINISTERED, ADMINISTERED.removeprefix("#")) + LESS)
        provide_pause(node, directory)
        _provide_image(node, IMAGE, cluster.image, directory)
        _provide_etcd(cluster)
        _provide_volumes(cluster)
        yield cluster


def provide_pause(node: Node, directory: Path) -> None:
    """Give a node the image of the container that every pod has."""
    container = buildah("from", "scratch")
    buildah("copy", container, PROGRAMS / "pause", "/pause")
    buildah("config", "--entrypoint", '["/pause"]', container)
    buildah("commit", "--rm", container, PAUSE)
    _provide_image(node, PAUSE, PAUSE, directory)


def _provide_image(node: Node, ours: str, name: str, directory: Path) -> None:
    archive = directory / "image.tar"
    buildah("push", ours, f"docker-archive:{archive}:{name}")
    node.import_image(archive)


def _provide_etcd(cluster: Cluster) -> None:
    port = {"name": "client", "port": BROKERS_ETCD_PORT}
    place = {"name": "etcd", "namespace": "etcd"}
    slice_of = {**place, "labels": {"kubernetes.io/service-name": "etcd"}}
    cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "etcd"}},
        {"apiVersion": "v1", "kind": "Service", "metadata": place, "spec": {"ports": [port]}},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": slice_of,
            "addressType": "IPv4",
            "ports": [port],
            "endpoints": [{"addresses": [ADDRESS]}],
        },
    )


def _provide_volumes(cluster: Cluster) -> None:
    affinity = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NAME]}]}
    cluster.apply(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "local", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        *(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"volume-{number}"},
                "spec": {
                    "capacity": {"storage": "20Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "local",
                    "local": {"path": f"/node/volumes/{number}"},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [affinity]}},
                },
            }
            for number in range(VOLUMES)
        ),
    )
    for number in range(VOLUMES):
        (cluster.node.directory / "volumes" / str(number)).mkdir()


def page_block(heading: str, number: int) -> str:
    """Return a block of commands of the page."""
    return Page.read(PAGE).blocks(heading)[number]
