"""The files of deploy/ for Docker and Kubernetes in the eyes of their own tools (`make test-packages`): hadolint, the
reader of compose files that Docker has, kustomize, and the schemas of Kubernetes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.rules import ROOT

TOOLS = ROOT / "build/tools/bin"
COMPOSE, KUBERNETES = ROOT / "deploy/compose", ROOT / "deploy/kubernetes"
FIRST_RELEASE = "1.31"  # of Kubernetes: `ordinals` of a StatefulSet are stable there
KINDS = {"Namespace": 1, "ConfigMap": 3, "Service": 3, "StatefulSet": 3, "PodDisruptionBudget": 3}

pytestmark = pytest.mark.skipif(
    not (TOOLS / "hadolint").exists() or not shutil.which("kubectl"), reason="`make test-packages` installs the tools"
)


def run(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(word) for word in words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


def rendered(directory: Path) -> str:
    done = run("kubectl", "kustomize", directory)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_hadolint_takes_the_dockerfile() -> None:
    done = run(TOOLS / "hadolint", ROOT / "deploy/docker/Dockerfile")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "names",
    [["single.yaml"], ["cluster.yaml"], ["single.yaml", "monitoring.yaml"], ["cluster.yaml", "monitoring.yaml"]],
    ids=" with ".join,
)
def test_docker_takes_the_compose_files(names: list[str]) -> None:
    done = run(TOOLS / "compose", *(COMPOSE / name for name in names))
    assert done.returncode == 0, done.stderr
    assert "image: rocketpy" in done.stdout


def test_a_mistake_in_a_compose_file_is_found(tmp_path: Path) -> None:
    """Else the reader would check nothing."""
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text((COMPOSE / "single.yaml").read_text().replace("read_only:", "readonly:"))
    assert run(TOOLS / "compose", wrong).returncode != 0


@pytest.mark.parametrize("components", ["[]", "[tls]", "[accounts]", "[tls, accounts]"])
def test_kubernetes_takes_the_manifests(tmp_path: Path, components: str) -> None:
    copied = shutil.copytree(KUBERNETES, tmp_path / "kubernetes")
    file = copied / "kustomization.yaml"
    assert "components: []" in file.read_text()
    file.write_text(file.read_text().replace("components: []", f"components: {components}"))
    (tmp_path / "all.yaml").write_text(rendered(copied))
    for release in ([], ["--kubernetes-version", FIRST_RELEASE]):
        done = run(TOOLS / "kubernetes-validate", "--strict", *release, tmp_path / "all.yaml")
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count(" passed for ") == sum(KINDS.values()), done.stdout


def test_a_mistake_in_a_manifest_is_found(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(rendered(KUBERNETES).replace("podManagementPolicy", "podManagment"))
    assert run(TOOLS / "kubernetes-validate", "--strict", wrong).returncode != 0
