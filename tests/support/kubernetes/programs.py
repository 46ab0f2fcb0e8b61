"""The programs of a Kubernetes node, kept in build/kubernetes: `python -m tests.support.kubernetes.programs`.

programs    Kubernetes and CoreDNS, built from their modules by Go; no cgo. The pause image's program, by the C compiler
root        a Debian with containerd, runc, CNI's plugins, nft and etcd, by mmdebstrap
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.image import OLD_LISTS, TOOLS
from tests.support.rules import ROOT

RELEASE = "1.34.4"  # the last minor one that runs with cgroups of version 1 unasked
COREDNS = "1.14.7"
BUILD = ROOT / "build/kubernetes"
PROGRAMS = BUILD / f"programs-{RELEASE}-{COREDNS}"
SUITE = "trixie"
NODE_ROOT = BUILD / SUITE
PACKAGES = "containerd,containernetworking-plugins,etcd-server,iproute2,mount,nftables,procps,runc,tini,util-linux"
COMMANDS = ("kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet")
NEEDED = (*TOOLS, "cc", "go", "nsenter", "openssl", "setpriv", "unshare")
CONTROLLERS = {"cpu", "cpuacct", "cpuset", "memory"}  # that the kubelet needs
# CoreDNS with the plugins of a cluster's name server alone: all of them would bring the clients of three clouds.
COREDNS_MAIN = """package main

import (
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
)

func main() { coremain.Run() }
"""
COREDNS_MODULE = f"module programs\n\ngo 1.25.0\n\nrequire github.com/coredns/coredns v{COREDNS}\n"


def missing() -> list[str]:
    """Return what this machine lacks."""
    lacks = [tool for tool in NEEDED if not shutil.which(tool)] + ["root"] * (os.geteuid() != 0)
    controllers = {name for names in cgroups() for name in names.split(",")}
    return lacks + ["cgroups of version 1"] * (not controllers >= CONTROLLERS)


def cgroups() -> dict[str, Path]:
    """Return the directories of this process in cgroups of version 1, by controllers or name of the hierarchy."""
    lines = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
    found = {names.removeprefix("name="): path.strip("/") for _, names, path in lines if names}
    return {names: Path("/sys/fs/cgroup", names, path) for names, path in found.items()}


def kubernetes_module(text: str) -> str:
    """Return a go.mod that builds Kubernetes, made of its own.

    Its own one replaces the staging modules with directories, which only the main module may do, and which the module
    proxy leaves out; they are published as v0.MINOR.PATCH.
    """
    staging = RELEASE.replace("1.", "v0.", 1)
    text = re.sub(r"(\S+) => \./staging/src/\S+", rf"\1 => \1 {staging}", text)
    text = text.replace("module k8s.io/kubernetes", "module programs", 1)
    return f"{text}\nrequire k8s.io/kubernetes v{RELEASE}\n"


def build_programs(target: Path) -> None:
    """Build all programs into a directory."""
    words = ("go", "mod", "download", "-json", f"k8s.io/kubernetes@v{RELEASE}")
    found = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
    source = Path(found["Dir"])
    version = f"-X k8s.io/component-base/version.gitVersion=v{RELEASE}"
    commands = [f"k8s.io/kubernetes/cmd/{name}" for name in COMMANDS]
    sums = (source / "go.sum").read_text()
    _go_build(target, kubernetes_module(Path(found["GoMod"]).read_text()), commands, flags=version, sums=sums)
    _go_build(target / "coredns", COREDNS_MODULE, ["."], main=COREDNS_MAIN)
    pause = source / "build/pause/linux/pause.c"
    subprocess.run(["cc", "-Os", "-static", "-DVERSION=rocketpy", "-o", target / "pause", pause], check=True)


def _go_build(
    target: Path, module: str, packages: list[str], *, flags: str = "", sums: str = "", main: str = ""
) -> None:
    place = BUILD / "module"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    (place / "go.mod").write_text(module)
    (place / "go.sum").write_text(sums)
    if main:
        (place / "main.go").write_text(main)
    words = ["go", "build", "-mod=mod", "-p", "2", "-trimpath", f"-ldflags=-s -w {flags}", "-o", str(target), *packages]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOWORK": "off"}
    subprocess.run(words, check=True, cwd=place, env=environment)
    shutil.rmtree(place)


def make_programs() -> None:
    new = PROGRAMS.with_name(f"{PROGRAMS.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    build_programs(new)
    new.rename(PROGRAMS)


def make_root() -> None:
    new = NODE_ROOT.with_name(f"{SUITE}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    # No service of the packages is started, and none is needed.
    options = ("--variant=minbase", f"--include={PACKAGES}", OLD_LISTS)
    subprocess.run(["mmdebstrap", *options, SUITE, str(new)], check=True)
    new.rename(NODE_ROOT)


def main() -> int:
    """Make what build/ does not have. Returns: the exit status; 2: a tool is missing."""
    if lacks := missing():
        print(f"rocketpy: `make test-kubernetes` needs {', '.join(lacks)}", file=sys.stderr)
        return 2
    if not NODE_ROOT.exists():
        make_root()
    if not PROGRAMS.exists():
        print(f"building Kubernetes {RELEASE} and CoreDNS {COREDNS} (about 3 GB of modules and caches) ...", flush=True)
        make_programs()
    return 0


if __name__ == "__main__":
    sys.exit(main())
