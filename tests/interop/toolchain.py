"""Builds the official clients' programs and fetches the official jars, once, into a cache outside the repository."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
SERVER_VERSION = "4.9.7"  # the newest that has name server, broker and mqadmin
BUILD_TIMEOUT_S = 600.0  # a first build downloads
MAVEN_OPTS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # short runs: 5.3 s of a processor instead of 9.2
TAIL = 3000  # characters of a failed build's output


class Missing(Exception):
    """A tool of the official clients is not on this machine."""


def need(tool: str) -> str:
    path = shutil.which(tool)
    if path is None:
        raise Missing(f"{tool} is not installed")
    return path


def cache_directory() -> Path:
    given = os.environ.get("ROCKETPY_INTEROP_CACHE", "~/.cache/rocketpy-interop")
    return Path(given).expanduser().absolute()


def fingerprint(directory: Path) -> str:
    """Changes with any source file, so that a cached build is never older than its source."""
    digest = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            digest.update(str(path.relative_to(directory)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def run_build(command: list[str], source: Path, **environment: str) -> None:
    done = subprocess.run(
        command, cwd=source, env=os.environ | environment, text=True, capture_output=True, timeout=BUILD_TIMEOUT_S
    )
    if done.returncode:
        raise AssertionError(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-TAIL:]}")


@contextlib.contextmanager
def alone(directory: Path) -> Iterator[None]:
    """One process at a time builds in the cache; the others then find what it has built."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def java_directory(version: str, *options: str) -> Path:
    """lib/ and interop.jar, the programs of java/, for one version of the Java client.

    Raises:
        Missing: no JDK or no Maven.
    """
    need("java"), need("javac")
    maven = need("mvn")
    source = HERE / "java"
    target = cache_directory() / f"java-{version}-{fingerprint(source)[:16]}"  # of this checkout, beside another's
    stamp = target / "built"
    with alone(target.parent):
        if not stamp.exists():
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            goals = ["-q", "-B", "compile", "dependency:copy-dependencies", f"-DoutputDirectory={target}/lib"]
            run_build(
                [maven, *goals, f"-Drocketmq.version={version}", f"-Dinterop.build={target}", *options],
                source,
                MAVEN_OPTS=MAVEN_OPTS,
            )
            run_build([need("jar"), "cf", str(target / "interop.jar"), "-C", str(target / "classes"), "."], source)
            stamp.touch()
    return target


def server_directory() -> Path:
    """lib/ with the official name server, broker and mqadmin. Raises Missing."""
    return java_directory(SERVER_VERSION, "-Pserver")


def go_program() -> Path:
    """The compiled Go program. Raises Missing."""
    go = need("go")
    source = HERE / "go"
    target = cache_directory() / f"interop-go-{fingerprint(source)[:16]}"
    with alone(target.parent):
        if not target.exists():
            begun = target.with_suffix(".new")  # a build that is killed leaves a part of the program
            run_build([go, "build", "-mod=readonly", "-o", str(begun), "."], source)
            begun.rename(target)
    return target
