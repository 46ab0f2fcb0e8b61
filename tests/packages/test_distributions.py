"""What `make dist` built, installed into clean environments and used (`make test-dist`).

Each environment gets one distribution and what pip brings with it, nothing of this tree. A broker of the wheel with the
core serves the clients of all; on processors that MACHINES of deploy/dist.py does not name, that of the source does.
"""

from __future__ import annotations

import os
import platform
import subprocess
import venv
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.broker import free_ports
from tests.support.rules import ROOT
from tests.support.waiting import wait_until

Install = Callable[..., Path]
NO_COMPILER = {"CC": "a-compiler-that-is-not-there"}
SEND = """
import sys
from rocketpy.client import Message, ProducerOptions
from rocketpy.client.sync import Producer
with Producer("packages", ProducerOptions(name_servers=sys.argv[1])) as producer:
    print(producer.send(Message("Parcels", sys.argv[2].encode())).status.name)
"""
MODULES_OF_THE_CLIENT = """
import sys
import rocketpy.client.sync, rocketpy.admin.cli
print(sorted({"cffi", "_cffi_backend", "prometheus_client"} & set(sys.modules)))
"""


def distribution(pattern: str) -> Path:
    found = list((ROOT / "dist").glob(pattern))
    assert len(found) == 1, f"dist/ has {len(found)} files {pattern}; run `make dist` first"
    return found[0]


def run(*command: object, env: Mapping[str, str] | None = None, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of an environment in a directory that has nothing of this tree."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ROCKETPY"))}
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, check=False, env={**variables, **(env or {})}, cwd=cwd)


@pytest.fixture(scope="module")
def install(tmp_path_factory: pytest.TempPathFactory) -> Install:
    """Install a distribution into a new environment; returns its bin directory."""

    def install(path: Path, **variables: str) -> Path:
        home = tmp_path_factory.mktemp("environment")
        venv.create(home, with_pip=True)
        pip = (home / "bin/python", "-m", "pip", "--disable-pip-version-check", "--no-cache-dir", "install", path)
        done = run(*pip, env=variables, cwd=home)
        assert done.returncode == 0, done.stdout + done.stderr
        return home / "bin"

    return install


@pytest.fixture(scope="module")
def with_core(install: Install) -> Path:
    machine = platform.machine()
    return install(distribution(f"*-abi3-manylinux*_{machine}.whl" if machine in {"x86_64", "aarch64"} else "*.tar.gz"))


@pytest.fixture(scope="module")
def without_core(install: Install) -> Path:
    return install(distribution("*-py3-none-any.whl"))


@pytest.fixture(scope="module")
def name_server(with_core: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the name server of `rocketpy standalone`, as a user starts it."""
    home = tmp_path_factory.mktemp("standalone")
    port, namesrv_port = free_ports()
    command = [with_core / "rocketpy", "standalone", "--store", home / "store", "--port", str(port)]
    command += ["--namesrv-port", str(namesrv_port), "--metrics-port", "0", "--set", "mappedFileSizeCommitLog=8388608"]
    with (home / "log").open("w") as log:
        server = subprocess.Popen(list(map(str, command)), cwd=home, stdout=log, stderr=subprocess.STDOUT)
    address = f"127.0.0.1:{namesrv_port}"
    try:
        wait_until(lambda: _knows_broker(with_core, address, home) or server.poll() is not None, "the broker's start")
        assert server.poll() is None, (home / "log").read_text()
        yield address
    finally:
        server.terminate()
        try:
            server.wait(30)
        finally:
            server.kill()
    assert server.returncode == 0, (home / "log").read_text()


def _knows_broker(bin_: Path, address: str, home: Path) -> bool:
    listed = run(bin_ / "mqadmin", "clusterList", "-n", address, "--output", "json", cwd=home)
    return listed.returncode == 0 and listed.stdout.strip() != ""


def check_use(bin_: Path, name_server: str, body: str, home: Path) -> None:
    """Send by the client, and read it by mqadmin."""
    sent = run(bin_ / "python", "-c", SEND, name_server, body, cwd=home)
    assert sent.stdout == "SEND_OK\n", sent.stderr
    read = run(bin_ / "mqadmin", "consumeMessage", "-t", "Parcels", "-n", name_server, cwd=home)
    assert body in read.stdout, read.stdout + read.stderr


def test_the_wheel_with_the_core(with_core: Path, name_server: str, tmp_path: Path) -> None:
    check_use(with_core, name_server, "from-the-core", tmp_path)


def test_the_wheel_without_the_core(without_core: Path, name_server: str, tmp_path: Path) -> None:
    check_use(without_core, name_server, "from-python-alone", tmp_path)


def test_the_source_without_a_compiler(install: Install, name_server: str, tmp_path: Path) -> None:
    bin_ = install(distribution("*.tar.gz"), **NO_COMPILER)
    assert not list(bin_.parent.glob("lib/**/_rocketpy*.so"))
    check_use(bin_, name_server, "from-the-source", tmp_path)


def test_the_source_with_a_compiler(install: Install, tmp_path: Path) -> None:
    bin_ = install(distribution("*.tar.gz"))
    assert list(bin_.parent.glob("lib/**/_rocketpy.abi3.so"))
    loaded = run(bin_ / "python", "-c", "import rocketpy.native.core", cwd=tmp_path)
    assert loaded.returncode == 0, loaded.stderr


@pytest.mark.parametrize("command", ["mqbroker -n 127.0.0.1:9", "mqnamesrv", "rocketpy standalone --store store"])
def test_a_server_without_the_core_says_what_is_missing(without_core: Path, command: str, tmp_path: Path) -> None:
    name, *options = command.split()
    ended = run(without_core / name, *options, env={"HOME": str(tmp_path)}, cwd=tmp_path)
    (line,) = ended.stderr.strip().splitlines()
    assert ended.returncode != 0 and "the compiled core is missing" in line, line


def test_the_client_imports_nothing_of_the_servers(with_core: Path, tmp_path: Path) -> None:
    """Where cffi and prometheus-client are there, too: their import takes time."""
    listed = run(with_core / "python", "-c", MODULES_OF_THE_CLIENT, cwd=tmp_path)
    assert listed.stdout == "[]\n", listed.stdout + listed.stderr
