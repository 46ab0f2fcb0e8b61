"""The image of deploy/docker, built of this tree and run (`make test-packages`): as any user, with a root that is
read-only and without capabilities, it serves, stops in order, and says why it cannot."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.support.first_send import SEND_MAX_S, USER, ports, seconds_to_first_send, send, standalone
from tests.support.image import (
    Container,
    Image,
    buildah,
    buildah_of_user,
    built_image,
    container,
    missing_tools,
    remove_replaced_images,
)
from tests.support.waiting import wait_until

SIZE_MAX_MB = 150.0
TRIES = 3  # of that: the machine does other things as well
READY = "boot success"
# A process that ends at once; its child gets process 1 as parent, and ends, too.
ORPHAN = """
import os, pathlib, time
if os.fork() == 0:
    pathlib.Path("/proc/self/comm").write_text("orphan")
    time.sleep(0.3)
"""
NAMES = """
import pathlib
for process in sorted(pathlib.Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
    print((process / "comm").read_text().strip())
"""
COUNTED = """
import sys
from rocketpy.processes.boot.memory import share_memory
share_memory()
before = sys.getrefcount(share_memory)
references = [share_memory] * 1000
print(sys.getrefcount(share_memory) - before)
"""

pytestmark = pytest.mark.skipif(bool(missing_tools()), reason=f"missing: {', '.join(missing_tools())}")


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    with built_image() as image:
        yield image


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A directory of USER."""
    directory = tmp_path / "volume"
    directory.mkdir()
    os.chown(directory, USER, USER)
    return directory


def wait_ready(running: Container) -> None:
    wait_until(lambda: READY in running.text() or running.process.poll() is not None, "the broker")
    assert running.process.poll() is None, running.text()


def test_the_size(image: Image) -> None:
    number, unit = image.size.split()
    assert unit == "MB" and float(number) < SIZE_MAX_MB, image.size


@pytest.mark.parametrize("storage", [buildah, buildah_of_user])
def test_an_image_that_a_later_build_replaces_is_removed(image: Image, storage: Callable[..., str]) -> None:
    """Fault: The directory build/image grew with each build by the layers of earlier builds."""

    def images() -> set[str]:
        return set(storage("images", "--all", "--quiet", "--no-trunc").split())

    def build(number: int) -> None:
        made = storage("from", "scratch")
        storage("config", "--label", f"number={number}", made)
        storage("commit", "--rm", made, "localhost/replaced")

    kept = images()
    build(1)
    first = images() - kept
    build(2)
    second = images() - kept - first
    remove_replaced_images(storage)
    assert (len(first), len(second), images()) == (1, 1, kept | second), "layers of images with a name stay"
    storage("rmi", "localhost/replaced")


def test_it_serves_is_healthy_and_stops_in_order(image: Image, volume: Path) -> None:
    """A second start finds what the first has stored."""
    _, namesrv, variables = ports()
    for is_empty in (True, False):
        with standalone(image, volume, namesrv, variables) as running:
            assert send(namesrv) == "SEND_OK"
            checked = running.execute(*image.config["Healthcheck"]["Test"][1:])
            assert (checked.returncode, len(checked.stdout.splitlines())) == (0, 2), checked.stdout + checked.stderr
            assert running.stop() == 0, running.text()
            text = running.text()
            before = "its creation" if is_empty else "a clean stop"
            assert f"after {before}: " in text and "Traceback" not in text, text
            assert ("log ends at 0," in text) == is_empty, text


def test_the_time_to_the_first_acknowledged_send(image: Image, tmp_path: Path) -> None:
    seconds = seconds_to_first_send(image, tmp_path, TRIES)
    print(f"seconds to the first acknowledged send: {', '.join(f'{each:.2f}' for each in sorted(seconds))}")
    assert min(seconds) <= SEND_MAX_S


def test_a_stop_while_it_starts(image: Image, volume: Path) -> None:
    """Process 1 has no default actions of signals: without an init the signal would be lost."""
    _, namesrv, variables = ports()
    with standalone(image, volume, namesrv, variables) as running:
        wait_until(lambda: running.execute("rocketpy", "--version").returncode == 0, "the container")
        begun_s = time.monotonic()
        running.stop()
        assert time.monotonic() - begun_s < 5, running.text()


def test_orphans_are_reaped(image: Image, volume: Path) -> None:
    """Of a killed broker, whose workers lose their parent, and of health checks."""
    _, namesrv, variables = ports()
    with standalone(image, volume, namesrv, variables) as running:
        wait_ready(running)
        assert running.execute("python3", "-c", ORPHAN).returncode == 0
        wait_until(lambda: "orphan" not in running.execute("python3", "-c", NAMES).stdout, "the end of the orphan")
        assert running.execute("python3", "-c", NAMES).stdout.splitlines()[0] == "tini"
        assert running.stop() == 0


def test_objects_are_immortal_before_workers_are_forked(image: Image, volume: Path) -> None:
    """Fault: The Python of the image had no immortal objects, and an idle broker took a fifth more memory."""
    _, namesrv, variables = ports()
    with standalone(image, volume, namesrv, variables) as running:
        wait_ready(running)
        counted = running.execute("python3", "-c", COUNTED)
        assert (counted.stdout.strip(), counted.stderr) == ("0", "")
        assert running.stop() == 0


@pytest.mark.parametrize("command", ["standalone", "broker"])
def test_a_volume_that_is_not_writable_is_one_line(image: Image, tmp_path: Path, command: str) -> None:
    volume = tmp_path / "volume"
    volume.mkdir(mode=0o755)
    _, namesrv, variables = ports()
    variables["ROCKETPY_NAMESRV_ADDR"] = f"127.0.0.1:{namesrv}"
    with container(image, volume, command, user=USER, environment=variables) as running:
        assert running.process.wait(20) == 1, running.text()
    (line,) = [line for line in running.text().splitlines() if " INFO " not in line and " WARNING " not in line]
    assert line.startswith("rocketpy: ") and "/var/lib/rocketpy" in line and str(USER) in line, line


def test_a_name_server_whose_volume_is_not_writable_says_so(image: Image, tmp_path: Path) -> None:
    """It serves: routes need no disk."""
    volume = tmp_path / "volume"
    volume.mkdir(mode=0o755)
    _, namesrv, variables = ports()
    variables["ROCKETPY_LISTEN_PORT"] = str(namesrv)
    with container(image, volume, "namesrv", user=USER, environment=variables) as running:
        wait_ready(running)
        (line,) = [line for line in running.text().splitlines() if " ERROR " in line]
        assert "cannot be changed: user" in line and "/var/lib/rocketpy" in line and str(USER) in line, line
        assert running.stop() == 0


def test_doctor_and_mqadmin_run_without_a_server(image: Image, volume: Path) -> None:
    store = "/var/lib/rocketpy/store"
    for arguments, status, text in (
        (("doctor", "--live"), 1, ""),
        (("doctor",), 0, store),
        (("admin", "--help"), 0, ""),
    ):
        with container(image, volume, *arguments, user=USER) as running:
            assert running.process.wait(30) == status, running.text()
            assert text in running.text() and "Traceback" not in running.text(), running.text()
