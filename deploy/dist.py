"""`make dist`: source distribution, wheel and bill of materials in dist/. The wheel is tried as well.

    dist/rocketpy_mq-VERSION.tar.gz     with csrc/: the wheel is built from it
    dist/rocketpy_mq-VERSION-*.whl      installed into a clean environment, where `rocketpy --help` must run
    dist/sbom.cdx.json                  CycloneDX: the exact versions installed there, with EXTRAS

The versions are then looked up among known vulnerabilities. One that is found fails the target, after all files are
there; an index that answers nothing about vulnerabilities is one line of output. Tools and trial are in build/dist.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DIST, WORK = ROOT / "dist", ROOT / "build" / "dist"
TOOLS, TRIAL = WORK / "tools", WORK / "trial"
PIP = (TOOLS / "bin/python", "-m", "pip", "--disable-pip-version-check")
PACKAGES = ("build>=1.2", "cyclonedx-bom>=7,<8", "pip-audit>=2.9")
EXTRAS = "compression,failover,tls"  # without spark, which is 500 MB of a project that publishes its own
TRY_CORE = "import rocketpy.native.core"


def run(*command: object, **options: Any) -> None:
    """Run a command from an empty directory, so that it cannot find rocketpy in this tree.

    Raises:
        SystemExit: the command failed; its output is on the terminal.
    """
    words = [str(word) for word in command]
    done = subprocess.run(words, check=False, capture_output=True, text=True, cwd=WORK, **options)
    if done.returncode != 0:
        print(done.stdout, done.stderr, sep="", file=sys.stderr)
        raise SystemExit(f"rocketpy: failed with status {done.returncode}: {' '.join(words)}")


def build() -> tuple[Path, Path]:
    """Build both distributions. Returns: the paths of sdist and wheel."""
    shutil.rmtree(DIST, ignore_errors=True)
    environment = {name: value for name, value in os.environ.items() if name != "ROCKETPY_BUILD"}
    run(TOOLS / "bin/python", "-m", "build", "--outdir", DIST, ROOT, env=environment)
    (sdist,), (wheel,) = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
    return sdist, wheel


def missing_sources(sdist: Path) -> list[str]:
    """Return the files of the C core that the source distribution lacks."""
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    wanted = [path.relative_to(ROOT).as_posix() for path in (ROOT / "csrc").rglob("*") if path.suffix in {".c", ".h"}]
    return sorted(set(wanted) - packed)


def try_wheel(wheel: Path) -> None:
    """Install the wheel with EXTRAS into a clean environment and run it.

    Raises:
        SystemExit: it cannot be installed, or it does not run.
    """
    venv.create(TRIAL, clear=True, with_pip=False)  # pip would be listed among the dependencies
    run(*PIP, "--python", TRIAL / "bin/python", "install", f"{wheel}[{EXTRAS}]")
    run(TRIAL / "bin/rocketpy", "--help")
    run(TRIAL / "bin/python", "-P", "-c", TRY_CORE)


def needs_of(wheel: Path) -> list[str]:
    """Return what the wheel asks for, of itself and for EXTRAS, as requirements without markers."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().partition("\n\n")[0].splitlines()
    start = "Requires-Dist: "
    asked = [line.removeprefix(start).partition(";") for line in lines if line.startswith(start)]
    wanted = {"", *(f'extra == "{extra}"' for extra in EXTRAS.split(","))}
    return [requirement.strip() for requirement, _, marker in asked if marker.strip() in wanted]


def write_bill(target: Path, wheel: Path) -> int:
    """Write the bill of materials. Returns: the number of dependencies."""
    described = WORK / "pyproject.toml"  # the component that all others belong to
    project = {"name": "rocketpy-mq", "version": wheel.name.split("-")[1], "license": "Apache-2.0"}
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in [*project.items(), ("dependencies", needs_of(wheel))]]
    described.write_text("[project]\n" + "".join(lines), encoding="utf-8")
    options = ("--pyproject", described, "--mc-type", "application", "--sv", "1.6", "--of", "JSON", "-o", target)
    run(TOOLS / "bin/cyclonedx-py", "environment", *options, TRIAL / "bin/python")
    return len(json.loads(target.read_text(encoding="utf-8"))["components"])


def known_vulnerabilities(report: str) -> tuple[int, list[str]]:
    """Read a report of pip-audit. Returns: the number of dependencies that its service knows, and the findings.

    An index without this service answers "not found", which pip-audit counts as a dependency without findings.
    """
    known = [found for found in json.loads(report)["dependencies"] if "skip_reason" not in found]
    findings = [
        f"{found['name']} {found['version']}: {each['id']}, fixed in {', '.join(each['fix_versions']) or 'no version'}"
        for found in known
        for each in found["vulns"]
    ]
    return len(known), findings


def audit(dependencies: int) -> int:
    """Look the installed versions up. Returns: the exit status."""
    (packages,) = TRIAL.glob("lib/python*/site-packages")
    command = [TOOLS / "bin/pip-audit", "--path", packages, "--progress-spinner", "off", "--format", "json"]
    asked = subprocess.run(command, check=False, capture_output=True, text=True, cwd=WORK)
    try:
        known, findings = known_vulnerabilities(asked.stdout)
    except ValueError:  # a traceback on standard error: the service cannot be reached
        known, findings = 0, []
    if not known:
        print("known vulnerabilities: NOT CHECKED, the package index does not answer about them")
        return 0
    print(f"known vulnerabilities: {len(findings)}; the service knows {known} of {dependencies} dependencies")
    print("".join(f"  {finding}\n" for finding in findings), end="")
    return 1 if findings else 0


def main() -> int:
    """Make and check everything. Returns: the exit status."""
    WORK.mkdir(parents=True, exist_ok=True)
    venv.create(TOOLS, with_pip=True)
    run(*PIP, "install", *PACKAGES)
    sdist, wheel = build()
    if missing := missing_sources(sdist):
        print(f"{sdist.name} lacks {', '.join(missing)}: name them in MANIFEST.in", file=sys.stderr)
        return 1
    try_wheel(wheel)
    dependencies = write_bill(DIST / "sbom.cdx.json", wheel)
    print("".join(f"{path.relative_to(ROOT)}\n" for path in (sdist, wheel, DIST / "sbom.cdx.json")), end="")
    print(f"the wheel runs in a clean environment, with {dependencies} dependencies (extras {EXTRAS})")
    return audit(dependencies)


if __name__ == "__main__":
    sys.exit(main())
