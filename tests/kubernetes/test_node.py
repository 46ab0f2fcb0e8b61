"""A node of tests/support/kubernetes leaves nothing on the machine on which it ran (`make test-kubernetes`)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.kubernetes import programs
from tests.support.kubernetes.cluster import provide_pause
from tests.support.kubernetes.node import CHANGED_SETTINGS, PAUSE, Node, running_node

pytestmark = pytest.mark.skipif(
    bool(programs.missing()) or not programs.PROGRAMS.exists(),
    reason=f"needs what `make test-kubernetes` builds, and: {', '.join(programs.missing())}",
)


def start_pod(node: Node) -> None:
    kubectl = ("kubectl", "--kubeconfig=/node/admin.conf")
    node.wait_for(*kubectl, "get", "serviceaccount", "default")
    node.run(*kubectl, "run", "sleeper", f"--image={PAUSE}")
    node.wait_for(*kubectl, "wait", "--timeout=1s", "--for=condition=Ready", "pod/sleeper")


def processes(namespace: str) -> list[int]:
    """Return the processes of a namespace, those included that have ended and are not waited for."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/ns/pid") == namespace:
                found.append(int(name))
        except OSError:  # it has ended
            continue
    return found


def machine(directory: Path) -> dict[str, object]:
    """Return what the machine has beside processes of the node that it could leave."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    own = (str(directory), str(programs.BUILD))
    return {
        "children": Path(f"/proc/self/task/{os.getpid()}/children").read_text(),
        "cgroups": [str(place) for place in programs.cgroups().values() if (place / "kubepods").exists()],
        "mounts": [line for line in mounts if any(path in line for path in own)],
        "bridge": Path("/sys/class/net/cni0").exists(),
        "settings": [Path("/proc/sys", name).read_text() for name in CHANGED_SETTINGS],
    }


def test_it_leaves_nothing_when_it_ends_with_its_pods(tmp_path: Path) -> None:
    """Fault: Processes that had ended were not waited for, and cgroups stayed in the hierarchy of systemd."""
    before = machine(tmp_path)
    with running_node(tmp_path / "node") as node:
        provide_pause(node, tmp_path)
        start_pod(node)
        namespace = os.readlink(f"/proc/{node.pid}/ns/pid")
        assert machine(tmp_path) != before
    assert machine(tmp_path) == before
    assert not processes(namespace)
