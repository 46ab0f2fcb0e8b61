"""`make deb`: a package for this release of Debian in dist/, rocketpy_VERSION_ARCHITECTURE.deb.

    /usr/lib/rocketpy         a virtual environment of the system's Python, with what rocketpy needs
    /usr/bin                  rocketpy, mqadmin, mqbroker, mqnamesrv
    /usr/lib/systemd/system   the units of deploy/, for these paths
    /usr/share/rocketpy       broker.conf, namesrv.conf: postinst copies them to /etc/rocketpy, once
    /usr/lib/sysusers.d       the user rocketpy

The maintainer scripts beside this file do what debhelper writes into such packages. It needs dpkg-deb, python3-venv,
python3-dev and a C compiler.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from email.utils import formatdate
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE, DEPLOY = ROOT / "deploy/debian", ROOT / "deploy"
WORK = ROOT / "build/deb"
PYTHON = "/usr/bin/python3"
TOOLS = WORK / "tools"
PIP = (TOOLS / "bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check")
HOME = "/usr/lib/rocketpy"
EXTRAS = "failover,lz4,zstd"
COMMANDS = ("rocketpy", "mqadmin", "mqbroker", "mqnamesrv")
SCRIPTS = ("postinst", "prerm", "postrm")
CONTROL = """\
Package: rocketpy
Version: {version}
Architecture: {architecture}
Maintainer: rocketpy developers <rocketpy@localhost>
Installed-Size: {size_kib}
Depends: python3 (>= {python}~), python3 (<< {next_python}~), libc6 (>= {glibc}), systemd | systemd-sysusers
Suggests: etcd-server, prometheus
Section: net
Priority: optional
Description: message broker compatible with Apache RocketMQ 4.x
 Broker, name server and mqadmin, which speak the protocol of RocketMQ 4.x and
 keep its files: its clients work unchanged.
"""


def run(*command: object, **environment: str) -> str:
    """Run a command, and return its output.

    Raises:
        SystemExit: it failed; its output is on the terminal.
    """
    words = [str(word) for word in command]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, **environment}
    )
    if done.returncode != 0:
        print(done.stdout, done.stderr, sep="", file=sys.stderr)
        raise SystemExit(f"rocketpy: failed with status {done.returncode}: {' '.join(words)}")
    return done.stdout


def build_wheel() -> Path:
    """Build the wheel with the core, by the system's Python: another one leaves its library's path in the core."""
    run(PYTHON, "-m", "venv", TOOLS)
    run(*PIP, "wheel", "--no-deps", "--wheel-dir", WORK, ROOT, ROCKETPY_BUILD="core")
    (wheel,) = WORK.glob("rocketpy_mq-*.whl")
    return wheel


def install_programs(root: Path, wheel: Path) -> None:
    """Make the environment, with the paths that it has when it is installed, and links to its commands."""
    home = root / HOME[1:]
    run(PYTHON, "-m", "venv", "--without-pip", home)
    run(*PIP, "--python", home / "bin/python", "install", "--no-compile", f"{wheel}[{EXTRAS}]")
    keep_what_runs(home)
    for core in home.rglob("*.so"):
        run("strip", "--strip-unneeded", core)
    (root / "usr/bin").mkdir(parents=True)
    for command in COMMANDS:
        (root / "usr/bin" / command).symlink_to(f"../lib/rocketpy/bin/{command}")


def keep_what_runs(home: Path) -> None:
    """Remove what only a developer needs of the environment, and the paths of this machine."""
    for script in (home / "bin").iterdir():
        if script.is_symlink():  # to the system's Python
            continue
        if script.name not in COMMANDS:  # of a dependency
            script.unlink()
        else:
            script.write_text(script.read_text().replace(f"#!{home}/", f"#!{HOME}/", 1))
    settings = home / "pyvenv.cfg"
    settings.write_text("".join(re.findall(r"^(?!command).*\n", settings.read_text(), re.MULTILINE)))
    (home / ".gitignore").unlink(missing_ok=True)  # Python 3.13 writes one
    shutil.rmtree(home / "include")


def install_files(root: Path, version: str) -> None:
    """Put the units, sample configurations, the user, and the documents into their places."""
    units, samples = root / "usr/lib/systemd/system", root / "usr/share/rocketpy"
    document, users = root / "usr/share/doc/rocketpy", root / "usr/lib/sysusers.d"
    for directory in (units, samples, document, users):
        directory.mkdir(parents=True)
    for unit in [*DEPLOY.glob("rocketpy-*.service"), *DEPLOY.glob("rocketpy-*.socket")]:
        text = unit.read_text().replace("/opt/rocketpy/", f"{HOME}/")
        (units / unit.name).write_text(text[text.index("[Unit]") :])  # without the advice how to install it
    for name in ("broker.conf", "namesrv.conf"):
        shutil.copyfile(DEPLOY / name, samples / name)
    shutil.copyfile(HERE / "sysusers.conf", users / "rocketpy.conf")
    shutil.copyfile(HERE / "copyright", document / "copyright")
    shutil.copyfile(ROOT / "NOTICE", document / "NOTICE")
    own = f"rocketpy ({version}) stable; urgency=medium\n\n  * See changelog.gz.\n\n"
    own += f" -- rocketpy developers <rocketpy@localhost>  {formatdate(time.time())}\n"
    texts = {"changelog.gz": (ROOT / "CHANGELOG.md").read_bytes(), "changelog.Debian.gz": own.encode()}
    for name, text in texts.items():
        (document / name).write_bytes(gzip.compress(text, 9, mtime=0))


def write_control(root: Path, version: str) -> None:
    """Write DEBIAN/: the description, checksums, and the scripts."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    control = root / "DEBIAN"
    control.mkdir()
    minor = int(run(PYTHON, "-c", "import sys; print(sys.version_info.minor)"))
    text = CONTROL.format(
        version=version,
        architecture=run("dpkg", "--print-architecture").strip(),
        size_kib=sum(path.stat().st_size for path in files) // 1024,
        python=f"3.{minor}",
        next_python=f"3.{minor + 1}",
        glibc=run("dpkg-query", "--show", "--showformat", "${source:Upstream-Version}", "libc6"),
    )
    (control / "control").write_text(text)
    sums = [(hashlib.md5(path.read_bytes()).hexdigest(), path.relative_to(root)) for path in files]
    (control / "md5sums").write_text("".join(f"{digest}  {name}\n" for digest, name in sums))
    for script in SCRIPTS:
        shutil.copyfile(HERE / script, control / script)


def set_modes(root: Path) -> None:
    for path in root.rglob("*"):
        if not path.is_symlink():
            is_program = path.is_dir() or path.name in SCRIPTS or (path.parent.name == "bin" and path.is_file())
            path.chmod(0o755 if is_program else 0o644)
    root.chmod(0o755)


def main() -> int:
    """Build the package. Returns: the exit status."""
    if not shutil.which("dpkg-deb"):
        print("rocketpy: dpkg-deb is missing: a package for Debian is built on Debian", file=sys.stderr)
        return 1
    shutil.rmtree(WORK, ignore_errors=True)
    root = WORK / "root"
    root.mkdir(parents=True)
    wheel = build_wheel()
    version = wheel.name.split("-")[1]
    install_programs(root, wheel)
    install_files(root, version)
    write_control(root, version)
    set_modes(root)
    (ROOT / "dist").mkdir(exist_ok=True)
    for former in (ROOT / "dist").glob("rocketpy_*.deb"):  # the pages install dist/rocketpy_*.deb
        former.unlink()
    print(run("dpkg-deb", "--root-owner-group", "-Zxz", "--build", root, ROOT / "dist").strip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
