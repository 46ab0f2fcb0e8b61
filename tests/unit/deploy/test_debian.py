"""The scripts of Debian's package, which run as root; `make test-packages` installs the package."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.rules import ROOT

HERE = ROOT / "deploy/debian"
HELPERS = ("py3compile", "py3clean", "systemd-sysusers", "deb-systemd-helper", "deb-systemd-invoke", "systemctl")
AS_ANOTHER = """#!/bin/sh
echo "$@" >> {log}
while [ "$1" != cp ]; do shift; done
exec "$@"
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root of a file system with a file of root's, and the samples of the package."""
    samples = tmp_path / "share"
    samples.mkdir()
    for name in ("broker.conf", "namesrv.conf"):
        (samples / name).write_text(f"sample {name}")
    (tmp_path / "shadow").write_text("root:*:")
    return tmp_path


def run(root: Path, script: str, *words: str) -> list[str]:
    """Run a script of the package. Returns: the arguments of each call of install and setpriv."""
    programs, log = root / "bin", root / "log"
    programs.mkdir()
    log.touch()
    for name in HELPERS:
        (programs / name).write_text("#!/bin/sh\n")
    (programs / "install").write_text(f'#!/bin/sh\necho "$@" >> {log}\nmkdir -p {root / "etc"}\n')
    (programs / "setpriv").write_text(AS_ANOTHER.format(log=log))
    for program in programs.iterdir():
        program.chmod(0o755)
    text = (HERE / script).read_text().replace("/etc/rocketpy", str(root / "etc"))
    text = text.replace("/usr/share/rocketpy", str(root / "share"))
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["sh", "-c", text, script, *words], env={"PATH": path}, check=True)
    return log.read_text().splitlines()


def link(root: Path) -> dict[str, str]:
    """Put links of both kinds to root's file into /etc/rocketpy, as a broker may. Returns: all files there."""
    configuration = root / "etc"
    configuration.mkdir()
    (configuration / "broker.conf").symlink_to(root / "nothing")
    (configuration / "namesrv.conf").hardlink_to(root / "shadow")
    (configuration / "tools.yml").symlink_to(root / "shadow")
    return tree(root)


def tree(root: Path) -> dict[str, str]:
    return {str(path): f"{path.lstat().st_mode:o} {path.lstat().st_ino}" for path in sorted(root.glob("etc/*"))}


def test_the_first_installation_copies_the_samples_as_the_user_of_the_servers(root: Path) -> None:
    directory, *copies = run(root, "postinst", "configure")
    assert directory == f"-d -o rocketpy -g rocketpy {root / 'etc'}"
    assert len(copies) == 2 and all("--reuid rocketpy --regid rocketpy --clear-groups" in one for one in copies)
    for name in ("broker.conf", "namesrv.conf"):
        assert (root / "etc" / name).read_text() == f"sample {name}"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("postinst", ("configure",)),
        ("postinst", ("configure", "0.1")),
        ("postinst", ("abort-upgrade", "0.1")),
        ("prerm", ("upgrade", "0.2")),
        ("prerm", ("remove",)),
        ("postrm", ("upgrade", "0.2")),
    ],
)
def test_no_script_touches_what_is_in_place_of_a_configuration(root: Path, script: str, words: tuple[str, ...]) -> None:
    """Fault: An upgrade of Debian's package gave user rocketpy any file behind a link that a broker had put into
    /etc/rocketpy."""
    before = link(root)
    called = run(root, script, *words)
    assert called == ([f"-d -o rocketpy -g rocketpy {root / 'etc'}"] if words == ("configure",) else [])
    assert tree(root) == before
    assert (root / "shadow").read_text() == "root:*:"
    assert not (root / "nothing").exists()


def test_the_package_has_no_file_of_which_dpkg_would_follow_a_link(tmp_path: Path) -> None:
    """Fault: An upgrade let dpkg write a configuration, as root, to any file that a broker had linked to."""
    build = runpy.run_path(str(HERE / "build.py"))
    build["install_files"](tmp_path, "1")
    assert not (tmp_path / "etc").exists()
    assert sorted(path.name for path in (tmp_path / "usr/share/rocketpy").iterdir()) == ["broker.conf", "namesrv.conf"]


def test_the_environment_of_the_package_has_only_what_runs(tmp_path: Path) -> None:
    """Fault: Of Debian 13 the package had a .gitignore, which Python 3.13 writes into environments."""
    build = runpy.run_path(str(HERE / "build.py"))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text("*")
    for name in ("mqadmin", "pygmentize"):
        (tmp_path / "bin" / name).write_text(f"#!{tmp_path}/bin/python\n")
    build["keep_what_runs"](tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"bin", "lib", "lib64", "pyvenv.cfg"}
    assert {path.name for path in (tmp_path / "bin").iterdir() if not path.is_symlink()} == {"mqadmin"}
    assert (tmp_path / "bin/mqadmin").read_text() == "#!/usr/lib/rocketpy/bin/python\n"
