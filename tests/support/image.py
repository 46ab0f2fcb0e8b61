"""The image of deploy/docker, built and run without Docker: buildah, mmdebstrap and crun of Debian. `docker.py` builds
and runs it with Docker.

base        what the Dockerfile's debian:trixie-slim is: minbase, without manuals and languages, by mmdebstrap
image       by buildah, in a chroot, as an ordinary user (nobody); all that it keeps is in build/image, and of the
            images with the same name only the last one
container   by crun, as root, with what `docker run --read-only --cap-drop ALL --user UID --network host --volume
            DIRECTORY` gives: processes of its own below process 1, variables and arguments of the image
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import attrs

from tests.support.rules import ROOT

TOOLS = ("buildah", "mmdebstrap", "crun")
WORK = ROOT / "build/image"
BUILDER, BUILDER_IDS = "nobody", "200000:65536"  # and the users of the image, as /etc/subuid would give them to it
PLACE = Path("/mnt")  # where the builder finds this tree, whose directories may be root's alone
BASE, IMAGE = "localhost/debian:trixie-slim", "localhost/rocketpy"
LEFT_OUT = ("path-exclude=/usr/share/man/*", "path-exclude=/usr/share/locale/*", "path-exclude=/usr/share/doc/*")
OURS = ("/etc/pip.conf", "/usr/local/share/ca-certificates")  # with what this machine reaches PyPI, if it has that
NAMESPACES = ("pid", "mount", "ipc", "uts")
# A view of cgroups of its own: crun refuses machines that have those of both versions.
ALONE = ("unshare", "--mount", "sh", "-c", 'mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$@"', "sh")
CRUN = (*ALONE, "crun", "--cgroup-manager=disabled", "--root", str(WORK / "crun"))
# A mirror of a day that has passed is accepted: its lists say how long they are valid.
OLD_LISTS = '--aptopt=Acquire::Check-Valid-Until "false"'
STOP_S = 30.0


def missing_tools() -> list[str]:
    return [tool for tool in TOOLS if not shutil.which(tool)] + (["root"] if os.geteuid() else [])


def run(*words: object, timeout_s: float = 1800.0) -> str:
    """Run a command, and return its output; fail with all of it if the command does."""
    command = [str(word) for word in words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s, cwd=ROOT)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def buildah(*words: object) -> str:
    """By root, with its own images."""
    WORK.mkdir(parents=True, exist_ok=True)  # buildah would make it root's alone, and BUILDER has its directory in it
    return run("buildah", *_storage(WORK / "of-root"), *words).strip()


def buildah_of_user(*words: object) -> str:
    """By BUILDER, with its own images. Paths are those of this tree from its root on."""
    own = WORK / "of-user"
    own.mkdir(parents=True, exist_ok=True)
    shutil.chown(own, BUILDER)
    ids = WORK / "ids"
    ids.write_text(f"{BUILDER}:{BUILDER_IDS}\n")
    view = PLACE / own.relative_to(ROOT)
    mounts = [(ids, "/etc/subuid"), (ids, "/etc/subgid"), (ROOT, PLACE)]
    script = " && ".join(f"mount --bind {source} {target}" for source, target in mounts)
    script += f" && cd {PLACE} && exec setpriv --reuid={BUILDER} --regid=nogroup --clear-groups "
    script += f'env -u XDG_RUNTIME_DIR HOME={view} TMPDIR={view} "$@"'
    return run("unshare", "--mount", "sh", "-c", script, "sh", "buildah", *_storage(view), *words).strip()


def _storage(place: Path) -> tuple[object, ...]:
    return "--root", place / "storage", "--runroot", place / "run", "--storage-driver", "vfs"


def make_base() -> None:
    """Make the base, if build/ does not have it."""
    if BASE in buildah_of_user("images", "--format", "{{.Name}}:{{.Tag}}").split():
        return
    with debian() as archive:
        container = buildah_of_user("from", "scratch")
        buildah_of_user("add", container, archive.relative_to(ROOT), "/")
        buildah_of_user("commit", container, BASE)
        buildah_of_user("rm", container)


@contextlib.contextmanager
def debian(hooks: Sequence[str] = ()) -> Iterator[Path]:
    """Make an archive of Debian 13, as small as debian:trixie-slim.

    Args:
        hooks: options of mmdebstrap that change the files at the end.
    """
    WORK.mkdir(parents=True, exist_ok=True)
    archive = WORK / f"base-{uuid.uuid4().hex[:8]}.tar"
    options = [f"--dpkgopt={option}" for option in LEFT_OUT]
    try:
        run("mmdebstrap", "--variant=minbase", OLD_LISTS, *options, *hooks, "trixie", archive)
        yield archive
    finally:
        archive.unlink(missing_ok=True)


@attrs.frozen
class ContainerSpec:
    """What a container is started with."""

    name: str
    volume: Path  # becomes /var/lib/rocketpy
    arguments: Sequence[str]  # of the image; none: its own
    user: int
    environment: Mapping[str, str]  # variables beside those of the image
    files: Mapping[str, Path]  # of this machine, by their paths in the container

    @property
    def shared(self) -> dict[str, Path]:
        """All that the container has of this machine, by paths in the container."""
        return {"/var/lib/rocketpy": self.volume, **self.files}


class Engine(Protocol):
    """The program that runs containers."""

    def run(self, spec: ContainerSpec) -> list[str]:
        """The command that runs a container, and ends with the status of its process 1."""

    def execute(self, name: str, user: int) -> list[str]:
        """How a command begins that runs another process in the container."""

    def signal(self, name: str, signal: str) -> list[str]:
        """The command that sends process 1 a signal."""


@attrs.frozen
class Image:
    """A built image."""

    engine: Engine
    config: Mapping[str, Any]  # Entrypoint, Cmd, Env, User, Healthcheck ...
    size: str  # of its layers, as `docker images` shows it


@attrs.frozen
class Crun:
    """crun with an image that is unpacked in a directory."""

    root: Path
    config: Mapping[str, Any]

    def run(self, spec: ContainerSpec) -> list[str]:
        bundle = spec.volume.with_name(spec.name)
        words = [*self.config["Entrypoint"], *(spec.arguments or self.config["Cmd"])]
        variables = [*self.config["Env"], *(f"{key}={value}" for key, value in spec.environment.items())]
        runtime = _runtime(self.root, spec.shared, words, variables, spec.user)
        (bundle / "config.json").write_text(json.dumps(runtime))
        return [*CRUN, "run", "--bundle", str(bundle), spec.name]

    def execute(self, name: str, user: int) -> list[str]:
        return [*CRUN, "exec", "--user", f"{user}:{user}", name]

    def signal(self, name: str, signal: str) -> list[str]:
        return [*CRUN, "kill", name, signal]


def build_image() -> None:
    """Build the image of this tree as an ordinary user, and give it to root; layers that have not changed are taken
    from build/."""
    buildah_of_user("rm", "--all")  # containers of builds that were killed; nothing else has any there
    make_base()
    volumes = [f"--volume={path}:{path}:ro" for path in OURS if Path(path).exists()]
    options = ("--isolation", "chroot", "--network", "host", "--format", "docker", "--layers", *volumes)
    file = "deploy/docker/Dockerfile"
    options += ("--build-arg", f"BASE={BASE}", "--ignorefile", f"{file}.dockerignore", "--file", file)
    buildah_of_user("build", *options, "--tag", IMAGE, ".")
    archive = Path("build/image/of-user") / f"image-{uuid.uuid4().hex[:8]}.tar"
    try:
        buildah_of_user("push", IMAGE, f"docker-archive:{archive}:{IMAGE}:latest")
        buildah("pull", f"docker-archive:{archive}")
    finally:
        (ROOT / archive).unlink(missing_ok=True)
    for storage in (buildah_of_user, buildah):
        remove_replaced_images(storage)


def remove_replaced_images(storage: Callable[..., str]) -> None:
    """Remove images that lost their name to a later build, with their own layers, and containers of killed runs that
    use them. Layers of named images stay."""
    storage("rmi", "--prune", "--force")


@contextlib.contextmanager
def built_image() -> Iterator[Image]:
    """Build the image of this tree and unpack it."""
    build_image()
    config = json.loads(buildah("inspect", "--type", "image", IMAGE))["Docker"]["config"]
    size = buildah("images", "--format", "{{.Size}}", IMAGE)
    container = buildah("from", IMAGE)
    try:
        yield Image(Crun(Path(buildah("mount", container)), config), config, size)
    finally:
        buildah("rm", container)


@attrs.define(eq=False)
class Container:
    """A running container."""

    name: str
    engine: Engine
    process: subprocess.Popen[bytes]  # of the engine; its exit status is that of process 1
    log: Path
    user: int

    def execute(self, *words: object) -> subprocess.CompletedProcess[str]:
        """As `docker exec`."""
        command = [*self.engine.execute(self.name, self.user), *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=STOP_S)

    def stop(self) -> int:
        """As `docker stop`: SIGTERM to process 1. Returns: its exit status."""
        run(*self.engine.signal(self.name, "TERM"))
        return self.process.wait(STOP_S)

    def text(self) -> str:
        return self.log.read_text(errors="replace")


@contextlib.contextmanager
def container(
    image: Image,
    volume: Path,
    *arguments: str,
    user: int,
    environment: Mapping[str, str] | None = None,
    files: Mapping[str, Path] | None = None,
    place: Sequence[str] = (),
) -> Iterator[Container]:
    """Start a container; killed at the end, if it has not stopped.

    Args:
        volume, arguments, user, environment, files: as in `ContainerSpec`.
        place: the first words of a command that runs in another network.
    """
    name = f"rocketpy-{uuid.uuid4().hex[:8]}"
    spec = ContainerSpec(name, volume, arguments, user, environment or {}, files or {})
    bundle = volume.with_name(name)
    bundle.mkdir()
    log = bundle / "log"
    with log.open("wb") as output:
        process = subprocess.Popen([*place, *image.engine.run(spec)], stdout=output, stderr=output)
    try:
        yield Container(name, image.engine, process, log, user)
    finally:
        if process.poll() is None:
            subprocess.run(image.engine.signal(name, "KILL"), check=False)
            process.wait(STOP_S)


def _runtime(
    root: Path, shared: Mapping[str, Path], words: Sequence[str], variables: Sequence[str], user: int
) -> dict[str, Any]:
    """The configuration of the OCI runtime: no capabilities, nothing to write to but the volume and /dev/shm."""
    quiet = ["nosuid", "noexec", "nodev"]
    return {
        "ociVersion": "1.0.2",
        "root": {"path": str(root), "readonly": True},
        "process": {
            "user": {"uid": user, "gid": user},
            "args": list(words),
            "env": list(variables),
            "cwd": "/",
            "noNewPrivileges": True,
            "capabilities": {},
        },
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": [*quiet, "mode=1777"]},
            *(
                {"destination": target, "type": "bind", "source": str(source), "options": ["bind", "rw"]}
                for target, source in shared.items()
            ),
        ],
        "linux": {"namespaces": [{"type": namespace} for namespace in NAMESPACES]},
    }
