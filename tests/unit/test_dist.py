"""`make dist` (deploy/dist.py): what it reads of archives and of a report about vulnerabilities.

The target itself builds and tries the packages, which takes too long for `make test`."""

from __future__ import annotations

import importlib.util
import json
import re
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.rules import ROOT

SPEC = importlib.util.spec_from_file_location("dist", ROOT / "deploy/dist.py")
assert SPEC is not None and SPEC.loader is not None
dist = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(dist)


def test_sources_of_the_core_that_an_sdist_lacks(tmp_path: Path) -> None:
    sdist, left_out = tmp_path / "p-1.tar.gz", "csrc/base/crc32.c"
    with tarfile.open(sdist, "w:gz") as archive:
        for path in sorted((ROOT / "csrc").rglob("*.[ch]")):
            if (name := path.relative_to(ROOT).as_posix()) != left_out:
                archive.add(path, f"p-1/{name}")
    assert dist.missing_sources(sdist) == [left_out]


def test_requirements_of_a_wheel_and_its_extras(tmp_path: Path) -> None:
    asked = ["attrs>=23.1", 'lz4>=4; extra == "lz4"', 'pyspark<4.4; extra == "spark"']
    text = "Name: p\n" + "".join(f"Requires-Dist: {each}\n" for each in asked) + "\nRequires-Dist: of the description\n"
    with zipfile.ZipFile(tmp_path / "p.whl", "w") as archive:
        archive.writestr("p-1.dist-info/METADATA", text)
    assert dist.needs_of(tmp_path / "p.whl") == ["attrs>=23.1", "lz4>=4"]


def test_the_bill_names_uplot_as_the_notice_does() -> None:
    component = dist.uplot()
    assert component["purl"] == f"pkg:npm/uplot@{component['version']}"
    assert f"uPlot {component['version']}," in (ROOT / "NOTICE").read_text(encoding="utf-8")


@pytest.mark.parametrize("program", ["deploy/dist.py", "deploy/debian/build.py"])
def test_extras_of_the_packages_are_those_of_setup(program: str) -> None:
    """Fault: The bill of materials lacked lz4 and zstd: it named an extra that was split, and pip only warns."""
    known = (ROOT / "setup.py").read_text(encoding="utf-8").partition("extras_require={")[2]
    (asked,) = re.findall(r'^EXTRAS = "([^"]+)"', (ROOT / program).read_text(encoding="utf-8"), re.MULTILINE)
    assert [extra for extra in asked.split(",") if f'"{extra}": [' not in known] == []


def test_the_oldest_starlette_answers_a_header_range_in_linear_time() -> None:
    """Fault: The console could be installed with a starlette that has CVE-2025-62727."""
    oldest = re.findall(r'"starlette>=([\d.]+)"', (ROOT / "setup.py").read_text(encoding="utf-8"))
    assert len(oldest) == 2
    assert all(tuple(map(int, each.split("."))) >= (0, 49, 1) for each in oldest), oldest


def test_a_dependency_that_the_service_does_not_know_is_not_counted_as_sound() -> None:
    skipped = {"name": "a", "skip_reason": "Dependency not found on PyPI and could not be audited: a (1)"}
    sound = {"name": "b", "version": "2", "vulns": []}
    hit = {
        "name": "c",
        "version": "3",
        "vulns": [{"id": "X-1", "fix_versions": ["3.1"]}, {"id": "X-2", "fix_versions": []}],
    }
    report = [json.dumps({"dependencies": found, "fixes": []}) for found in ([skipped], [skipped, sound, hit])]
    assert dist.known_vulnerabilities(report[0]) == (0, [])
    assert dist.known_vulnerabilities(report[1]) == (2, ["c 3: X-1, fixed in 3.1", "c 3: X-2, fixed in no version"])
