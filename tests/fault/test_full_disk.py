"""Invariant: on a full disk sends are refused with SERVICE_NOT_AVAILABLE and a text that says why, nothing that was
acknowledged is lost, no process dies of it, and when space returns the broker goes on by itself."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the broker needs the compiled core")

from rocketpy import aio
from rocketpy.admin.admin import Admin
from rocketpy.cli.client_checks import Question, client_findings
from rocketpy.cli.findings import Finding
from tests.support.broker import RunningBroker, running_broker
from tests.support.history import Connection, Load, check, send_request
from tests.support.waiting import wait_until

SEED = int(os.environ.get("ROCKETPY_FAULT_SEED", random.SystemRandom().randrange(1 << 32)))
DISK_MIB = 96
SERVICE_NOT_AVAILABLE = 14
SETTINGS = {
    "mappedFileSizeCommitLog": str(4 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "maxMessageSize": "100000",
    # Neither the share of the disk that is used nor the age of what waits for it, but the disk itself is to say no.
    "brokerFastFailureEnable": "false",
    "diskSpaceWarningLevelRatio": "100",
    "diskSpaceCleanForciblyRatio": "100",
    "diskFreeMinBytes": "0",
}


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    if request.param == "tmpfs":
        made = mount("-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", place)
    else:
        image = tmp_path / "image"
        image.touch()
        os.truncate(image, DISK_MIB << 20)
        made = subprocess.run(["mkfs.ext4", "-q", image], capture_output=True, text=True) if has_mkfs() else None
        if made is None or made.returncode == 0:
            made = mount("-o", "loop", image, place)
    if made.returncode != 0:
        pytest.skip(f"cannot mount {request.param} here: {made.stderr.strip()}")
    try:
        yield place
    finally:
        for _ in range(100):
            if subprocess.run(["umount", place], capture_output=True).returncode == 0:
                break
            time.sleep(0.1)


def mount(*words: str | Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["mount", *words], capture_output=True, text=True)
    except FileNotFoundError as exc:
        return subprocess.CompletedProcess(words, 1, "", str(exc))


def has_mkfs() -> bool:
    return any(os.access(f"{directory}/mkfs.ext4", os.X_OK) for directory in ("/sbin", "/usr/sbin", "/bin", "/usr/bin"))


def fill(place: Path, keep_bytes: int) -> Path:
    """Leave `keep_bytes` of room; the broker may take some of it at the same time."""
    ballast = place / "ballast"
    while True:
        stat = os.statvfs(place)
        with ballast.open("wb") as file, contextlib.suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, max(1, stat.f_bavail * stat.f_frsize - keep_bytes))
            return ballast


def wait_for_refusal(load: Load) -> tuple[int, str]:
    deadline = time.monotonic() + 60
    while not load.refusals:
        assert time.monotonic() < deadline, "no send was refused"
        time.sleep(0.02)
    return load.refusals[-1]


def wait_for_acceptance(broker: RunningBroker) -> None:
    deadline = time.monotonic() + 60
    connection = Connection(broker.port, timeout_s=10)
    while True:
        reply = connection.ask(send_request("probe", 0, [b"0 probe 0 x"], 1))
        if reply.code == 0:
            connection.close()
            return
        assert reply.code == SERVICE_NOT_AVAILABLE, reply
        assert time.monotonic() < deadline, f"space has returned, and yet: {reply}"
        time.sleep(0.05)


def test_a_full_disk_refuses_and_a_free_one_serves_again(disk: Path) -> None:
    print(f"ROCKETPY_FAULT_SEED={SEED}")
    with running_broker(SETTINGS, store=disk / "store") as broker:
        workers = broker.workers()
        loads = []
        for turn in range(2):
            ballast = fill(disk, keep_bytes=12 << 20)
            with Load(broker.port, SEED + turn, [("alpha", 4), ("beta", 4)], connections=2, body_bytes=2000) as load:
                code, remark = wait_for_refusal(load)
                assert code == SERVICE_NOT_AVAILABLE and "disk" in remark, (code, remark)
                count = len(load.acks)
            loads.append(load)
            assert count > 0 and {code for code, _ in load.refusals} == {SERVICE_NOT_AVAILABLE}, load.refusals[:3]
            ballast.unlink()
            wait_for_acceptance(broker)
        assert broker.workers() == workers, f"somebody died:\n{broker.text()[-4000:]}"
        print(check(broker.port, loads), f"{sum(len(load.refusals) for load in loads)} refusals")
        fill(disk, keep_bytes=0)
        status = broker.stop()  # not clean where the checkpoint finds no room, and it says so
        assert status == 0 or "checkpoint: No space left on device" in broker.text(), broker.text()[-4000:]
        (disk / "ballast").unlink()
        broker.start()
        print(check(broker.port, loads))


def disk_findings(broker: RunningBroker) -> list[Finding]:
    async def look() -> list[Finding]:
        async with Admin(name_servers=broker.namesrv) as admin:
            return [each for each in await client_findings(admin, Question()) if "disk" in each.found]

    found: list[Finding] = aio.run(look)
    return found


def disk_finding(broker: RunningBroker, *, is_fatal: bool) -> Finding:
    """The finding, as soon as the broker has looked at its disk."""
    found: list[Finding] = []

    def is_there() -> bool:
        found[:] = [each for each in disk_findings(broker) if each.is_fatal == is_fatal]
        return bool(found)

    wait_until(is_there, "a finding about the disk")
    return found[0]


def test_doctor_tells_how_full_the_disk_is(disk: Path) -> None:
    """With the thresholds as they are without a setting, the broker does what doctor says: it refuses sends."""
    small = {key: value for key, value in SETTINGS.items() if not key.startswith("disk")}
    with running_broker(small, store=disk / "store") as broker:
        assert disk_findings(broker) == []
        for used, is_fatal, text in ((0.82, False, "deleted before"), (0.95, True, "sends are refused")):
            (disk / "ballast").unlink(missing_ok=True)
            fill(disk, keep_bytes=round((1 - used) * (DISK_MIB << 20)))
            finding = disk_finding(broker, is_fatal=is_fatal)
            assert text in finding.found and "free space" in finding.remedy
        deadline, connection = time.monotonic() + 60, Connection(broker.port, timeout_s=10)
        while connection.ask(send_request("probe", 0, [b"0 probe 0 x"], 1)).code != SERVICE_NOT_AVAILABLE:
            assert time.monotonic() < deadline, "sends are not refused"
            time.sleep(0.1)
        connection.close()


def exhaust(place: Path) -> None:
    """Take all blocks, also those that are kept for root, and those that the file system had set aside for writes."""
    with (place / "ballast").open("wb") as file:
        for size in (1 << 20, 1 << 10, 1 << 10):
            subprocess.run(["sync", "--file-system", place], check=True)
            with contextlib.suppress(OSError):
                while True:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, size)


def test_a_full_disk_has_room_for_units_beside_others(disk: Path) -> None:
    """Fault: Where a page of the disk has several blocks, the unit of the next message killed the store worker."""
    with running_broker(SETTINGS, store=disk / "store") as broker:
        workers, connection = broker.workers(), Connection(broker.port, timeout_s=10)
        queue = disk / "store" / "consumequeue" / "alpha" / "0" / f"{0:020}"

        def has_unit(number: int) -> bool:
            return queue.exists() and any(queue.read_bytes()[20 * number : 20 * number + 20])

        for number in range(6):
            reply = connection.ask(send_request("alpha", 0, [b"0 alpha 0 x"], number))
            assert reply.code == 0, reply
            wait_until(partial(has_unit, number), "the message is in its queue")
            exhaust(disk)
        connection.close()
        assert broker.workers() == workers, f"somebody died:\n{broker.text()[-4000:]}"
