"""The image of deploy/docker, built and run by Docker itself, for `make test-docker`.

Images that the Dockerfile and the compose files name are pulled. Where no registry is reached, they are made of the
packages of Debian (mmdebstrap, root), and get the same names.
"""

from __future__ import annotations

import contextlib
import json
import resource
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import attrs
import yaml

from .doc_examples import Page
from .image import OURS, ContainerSpec, Image, debian, run
from .rules import ROOT

PAGE = "run/docker.md"
IMAGE = "rocketpy"
PULL_S = 300.0
FILES = 65536  # that a container of the compose files may open
BASE = "debian:trixie-slim"
# Images by repository: the package with the same program, and its command.
STAND_INS = {
    "quay.io/coreos/etcd": ("etcd-server", ["etcd"]),
    "prom/prometheus": (
        "prometheus",
        ["prometheus", "--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"],
    ),
}
RESTRICTED = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")


@attrs.frozen
class Docker:
    """The daemon of this machine."""

    def run(self, spec: ContainerSpec) -> list[str]:
        user = f"{spec.user}:{spec.user}"
        options = ["--rm", "--name", spec.name, "--network", "host", "--user", user, *RESTRICTED]
        options += [f"--volume={source}:{target}" for target, source in spec.shared.items()]
        options += [f"--env={key}={value}" for key, value in spec.environment.items()]
        return ["docker", "run", *options, IMAGE, *spec.arguments]

    def execute(self, name: str, user: int) -> list[str]:
        return ["docker", "exec", "--user", f"{user}:{user}", name]

    def signal(self, name: str, signal: str) -> list[str]:
        return ["docker", "kill", "--signal", signal, name]


def docker(*words: object) -> str:
    """Run a command of Docker. Returns: its output."""
    return run("docker", *words).strip()


def provide(name: str) -> None:
    """Have an image: the one that is there, the one of the registry, or its stand-in."""
    if _succeeds("docker", "image", "inspect", name) or _succeeds("docker", "pull", "--quiet", name):
        return
    if name == BASE:
        with debian(hooks=[hook for path in OURS if Path(path).exists() for hook in _copied(path)]) as archive:
            docker("import", "--change", 'CMD ["bash"]', archive, name)
        return
    provide(BASE)
    package, command = STAND_INS[name.partition(":")[0]]
    install = f"apt-get update && apt-get install -y --no-install-recommends {package}"
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "Dockerfile")
        file.write_text(f"FROM {BASE}\nRUN {install}\nCMD {json.dumps(command)}\n")
        docker("build", "--tag", name, directory)


def _succeeds(*words: str) -> bool:
    return subprocess.run(words, capture_output=True, check=False, timeout=PULL_S).returncode == 0


def _copied(path: str) -> list[str]:
    """Options of mmdebstrap that copy a file or directory of this machine."""
    if Path(path).is_file():
        return [f"--customize-hook=upload {path} {path}"]
    return [f'--customize-hook=mkdir -p "$1{path}"', f"--customize-hook=sync-in {path} {path}"]


@contextlib.contextmanager
def built_image() -> Iterator[Image]:
    """Build the image by the command of the page; layers that have not changed are taken from Docker's cache."""
    provide(BASE)
    run("bash", "-ec", Page.read(PAGE).blocks("The image")[0].splitlines()[0])
    (found,) = json.loads(docker("image", "inspect", IMAGE))
    yield Image(Docker(), found["Config"], f"{found['Size'] / 1e6:.1f} MB")


@attrs.frozen
class Checkout:
    """A copy of this tree in which the page is followed, and a project of Compose of its own."""

    root: Path
    project: str

    def provide(self, file: str, service: str) -> None:
        """Have the image that a compose file names."""
        provide(yaml.safe_load((self.root / "deploy/compose" / file).read_text())["services"][service]["image"])

    def run(self, commands: str, directory: str = ".") -> str:
        """Run commands of a page. Raises: AssertionError: one of them failed."""
        # Test machines have root, but not always sudo.
        script = f'command -v sudo > /dev/null || sudo() {{ "$@"; }}\ncd {self.root / directory}\n{commands}'
        return run("env", f"COMPOSE_PROJECT_NAME={self.project}", "bash", "-exo", "pipefail", "-c", script)

    def container(self, service: str) -> str:
        """The id of the container of a service."""
        labels = (f"com.docker.compose.project={self.project}", f"com.docker.compose.service={service}")
        return docker("ps", "--quiet", *(f"--filter=label={label}" for label in labels))


@contextlib.contextmanager
def checkout(directory: Path) -> Iterator[Checkout]:
    """Copy what git has of this tree, with changes; the project's containers and volumes are removed at the end."""
    made = Checkout(directory / "checkout", f"rocketpy-test-{uuid.uuid4().hex[:8]}")
    for name in run("git", "ls-files").splitlines():
        if (ROOT / name).exists():
            (made.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, made.root / name)
    # A daemon without CAP_SYS_RESOURCE cannot raise its own limit.
    limit = min(FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    for path in (made.root / "deploy/compose").glob("*.yaml"):
        path.write_text(path.read_text().replace(f"nofile: {FILES}", f"nofile: {limit}"))
    try:
        yield made
    finally:
        docker("compose", "--project-name", made.project, "down", "--volumes")


def address_of(container: str) -> str:
    """The address of a container in its only network."""
    (found,) = json.loads(docker("inspect", container))
    (network,) = found["NetworkSettings"]["Networks"].values()
    return str(network["IPAddress"])


def health_of(container: str) -> str:
    return docker("inspect", "--format", "{{.State.Health.Status}}", container)
