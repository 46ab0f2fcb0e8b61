"""The file by which a broker signs its requests."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from rocketpy.acl.credentials import CredentialsFile, read_credentials
from rocketpy.errors import ConfigError
from rocketpy.remoting.signature import Credentials

GOOD = b"accessKey: broker-a\nsecretKey: '12345678'\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "credentials.yml", GOOD)


def write(path: Path, data: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(data)
    path.chmod(mode)
    return path


def replace(path: Path, data: bytes) -> None:
    """Replace the file, by another inode: the time of its change may be the same."""
    os.replace(write(path.with_suffix(".new"), data), path)


def test_both_keys(path: Path) -> None:
    assert read_credentials(path) == Credentials("broker-a", "12345678")


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o601, 0o644])
def test_a_file_of_everybody_is_refused(path: Path, mode: int) -> None:
    path.chmod(mode)
    with pytest.raises(ConfigError, match=r"aclCredentialsFile: other users may read it.*chmod 600") as caught:
        read_credentials(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_of_a_group_is_accepted(path: Path) -> None:
    path.chmod(0o640)
    assert read_credentials(path).access_key == "broker-a"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "needs two lines"),
        (b"accessKey: broker-a\n", "needs two lines"),
        (b"accessKey: broker-a\nsecretKey: ' '\n", "needs two lines"),
        (b"secretKey: s3cret-s3cret\naccessKey: [a]\n", "accessKey: expected"),
        (b"s3cret-s3cret\n", "expected `key: value` lines"),
        (b"secretKey: s3cret-s3cret\n\taccessKey: x\n", "not YAML"),
        (b"secretKey: s3cret-s3cret\nsecretKey: x\n", "there twice"),
    ],
)
def test_a_malformed_file_is_one_line_without_the_secret(path: Path, data: bytes, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        read_credentials(write(path, data))
    assert "\n" not in str(caught.value) and "s3cret" not in str(caught.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        CredentialsFile(tmp_path / "none.yml")


def test_a_change_is_taken_and_a_bad_one_is_not(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = CredentialsFile(path)
    with caplog.at_level(logging.INFO):
        replace(path, b"accessKey: broker-a\nsecretKey: changed-1\n")
        assert file.refreshed() == Credentials("broker-a", "changed-1")
        for bad in (b"accessKey: broker-a\n", b"\0"):
            replace(path, bad)
            assert file.refreshed() == Credentials("broker-a", "changed-1")
        path.unlink()
        assert file.refreshed() == Credentials("broker-a", "changed-1")
        replace(path, GOOD)
        assert file.refreshed() == Credentials("broker-a", "12345678")
    assert caplog.text.count("the changed credentials cannot be used") == 3
    assert "12345678" not in caplog.text and "changed-1" not in caplog.text


def test_an_unchanged_file_is_read_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = CredentialsFile(path)
    monkeypatch.setattr("rocketpy.acl.credentials.read_credentials", pytest.fail)
    assert file.refreshed() is file.credentials
