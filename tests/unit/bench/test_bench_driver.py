"""The load driver is compiled once for each state of its sources, and only a complete library has its name."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from rocketpy.bench import driver


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROCKETPY_BENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small driver of its own."""
    here = tmp_path / "sources"
    here.mkdir()
    (here / "load.h").write_text("int one(void);\n")
    (here / "load.c").write_text("int one(void);\nint one(void) { return 1; }\n")
    monkeypatch.setattr(driver, "HERE", here)
    return here


def test_it_is_built_again_when_a_source_has_changed(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = sources(tmp_path, monkeypatch)
    built = driver.build()
    made = built.stat().st_mtime_ns
    assert driver.build() == built and built.stat().st_mtime_ns == made
    (here / "load.c").write_text("int one(void);\nint one(void) { return 2; }\n")
    assert driver.build() != built
    assert len(list(cache.iterdir())) == 2, "nothing but the two libraries is left"


def test_a_compiler_that_fails_leaves_nothing(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (sources(tmp_path, monkeypatch) / "load.c").write_text("int one(void) { return; }}\n")
    with pytest.raises(driver.DriverMissing, match="does not compile"):
        driver.build()
    assert list(cache.iterdir()) == []


def test_without_a_compiler_the_error_names_the_remedy(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/nowhere/cc")
    with pytest.raises(driver.DriverMissing, match="install a C compiler"):
        driver.build()


def test_without_a_place_for_it_the_error_names_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ROCKETPY_BENCH_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(driver.DriverMissing, match="ROCKETPY_BENCH_CACHE"):
        driver.build()


def test_the_compiler_is_asked_with_the_words_of_cc(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources(tmp_path, monkeypatch)
    log, real = tmp_path / "log", shutil.which("cc")
    fake = tmp_path / "cc"
    fake.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec {real} "$@"\n')
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CC", f"{fake} -DMARK")
    driver.build()
    assert all(line.startswith("-DMARK ") for line in log.read_text().splitlines())
