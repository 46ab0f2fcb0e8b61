"""A node with its control plane, in namespaces of its own: processes, network, mounts, users of System V IPC, name.

root        the Debian of programs.py; what is written lies in /node, a directory of the test, or in memory
network     the bridge cni0; its address is the node's, and pods get theirs from its range. Nothing leads outside
cgroups     of version 1, below those of the test; the kubelet's are removed at the end
end         process 1 is killed and waited for: the kernel ends all others of its namespace before it, and mounts and
            network go with the last one. A test that is killed takes the node with it, but leaves its cgroups
names       CoreDNS runs as a process of the node, at its address; all else is as kubeadm sets it up
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import attrs
import yaml

from tests.support.waiting import wait_until

from .programs import NODE_ROOT, PROGRAMS, cgroups

NAME = "node-1"
ADDRESS = "10.244.0.1"
NETWORK = f"{ADDRESS}/16"
PODS = {"rangeStart": "10.244.1.1", "rangeEnd": "10.244.1.254"}
SERVICES = "10.96.0.0/16"
ETCD_PORT, BROKERS_ETCD_PORT = 2381, 2379
PAUSE = "localhost/pause:1"
READY_S = 300.0
END_S = 60.0
# The kubelet sets them for the whole machine, and stops if it cannot.
CHANGED_SETTINGS = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)

# $1: the root, $2: the programs, $3: a directory that becomes /node, $4: the node's address, $5: its name
BOOT = """
set -e
hostname "$5"
ip link set lo up
ip link add cni0 type bridge
ip addr add "$4" dev cni0
ip link set cni0 up
ip route add default dev cni0
echo 1 > /proc/sys/net/ipv4/ip_forward
controllers=$(awk -F: '$2 != "" {print $2}' /proc/self/cgroup)
mount --bind "$1" "$1"
mkdir -p "$1/programs" "$1/node"
mount --bind "$2" "$1/programs"
mount --bind "$3" "$1/node"
cd "$1"
for place in run tmp var/lib var/log; do mount -t tmpfs tmpfs $place; done
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs tmpfs sys/fs/cgroup
for one in $controllers; do
    case $one in name=*) options=none,$one;; *) options=$one;; esac
    mkdir sys/fs/cgroup/${one#name=}
    mount -t cgroup -o $options cgroup sys/fs/cgroup/${one#name=}
done
mount --rbind /dev dev
pivot_root . .
umount -l .
cd /
mount --make-rshared /
exec chroot . /usr/bin/tini -- sleep infinity
"""

CONTAINERD = f"""
version = 2
root = "/node/containerd"
state = "/run/containerd"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "/node/cni"
"""

CNI = {
    "cniVersion": "1.0.0",
    "name": "pods",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isDefaultGateway": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "dataDir": "/run/cni-addresses",
                "ranges": [[{"subnet": "10.244.0.0/16", "gateway": ADDRESS, **PODS}]],
            },
        }
    ],
}

KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    # Its network is the node's alone.
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "cgroupDriver": "cgroupfs",
    "clusterDNS": [ADDRESS],
    "clusterDomain": "cluster.local",
    "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
    # Of a disk that the machine shares with others.
    "evictionHard": {"memory.available": "100Mi"},
    "imageGCHighThresholdPercent": 100,
    "oomScoreAdj": 0,
    "podLogsDir": "/node/logs",
    "resolvConf": "/node/resolv.conf",
}

COREFILE = """
.:53 {
    errors
    kubernetes cluster.local {
        kubeconfig /node/admin.conf
        ttl 30
    }
    cache 30 {
        disable success cluster.local
        disable denial cluster.local
    }
    loadbalance
}
"""


@attrs.define(eq=False)
class Node:
    """A running one."""

    directory: Path  # /node inside
    pid: int  # of its process 1, outside
    processes: dict[str, subprocess.Popen[bytes]]

    def inside(self, *words: object) -> list[str]:
        """Return a command that runs inside."""
        variables = ("env", "-i", "HOME=/root", "PATH=/programs:/usr/sbin:/usr/bin:/sbin:/bin")
        entered = ("nsenter", "-t", str(self.pid), "-p", "-m", "-n", "-i", "-u", "-C")
        return [*entered, *variables, *map(str, words)]

    def run(self, *words: object) -> str:
        """Run a command inside. Returns: its output."""
        # Limited inside: `nsenter` has to stay until its child has ended, which nobody else waits for.
        limited = self.inside("timeout", "--signal=KILL", READY_S, *words)
        done = subprocess.run(limited, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self, name: str, *words: object) -> None:
        """Start a program inside, whose log is NAME.log; it ends with the node."""
        with (self.directory / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(self.inside(*words), stdout=log, stderr=log)

    @contextlib.contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """Stop a program that was started by `start`, and let it go on after the block."""
        process = self.processes[name]
        (program,) = _children(process)
        os.kill(program, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in (program, process.pid):  # `nsenter` stops and goes on with its child
                os.kill(pid, signal.SIGCONT)

    def check(self) -> None:
        """Raises AssertionError: a program has ended; with the end of its log."""
        for name, process in self.processes.items():
            assert process.poll() is None, f"{name}: {(self.directory / f'{name}.log').read_text()[-4000:]}"

    def wait_for(self, *words: object) -> None:
        """Return when a command inside succeeds."""

        def succeeds() -> bool:
            self.check()
            return subprocess.run(self.inside(*words), capture_output=True, check=False).returncode == 0

        wait_until(succeeds, " ".join(map(str, words)), READY_S, pause_s=0.5)

    def import_image(self, archive: Path) -> None:
        """Give containerd the images of an archive of Docker."""
        shutil.move(archive, self.directory / "image.tar")
        self.run("ctr", "--namespace", "k8s.io", "images", "import", "/node/image.tar")
        (self.directory / "image.tar").unlink()


@contextlib.contextmanager
def running_node(directory: Path) -> Iterator[Node]:
    """Start a node; nothing of it is left after the block but the files in its directory."""
    directory.mkdir()
    _write_files(directory)
    with _same_settings(), _no_cgroups_left(), _booted(directory) as node:
        _start_control_plane(node)
        _start_node(node)
        yield node


@contextlib.contextmanager
def _booted(directory: Path) -> Iterator[Node]:
    """Start process 1 of a node; it and all others of the node have ended after the block."""
    words = ["setpriv", "--pdeathsig", "KILL", "unshare", "--kill-child", "--fork", "--pid", "--mount", "--mount-proc"]
    words += ["--uts", "--ipc", "--net", "--cgroup", "sh", "-c", BOOT, "sh"]
    with (directory / "boot.log").open("wb") as log:
        outer = subprocess.Popen([*words, NODE_ROOT, PROGRAMS, directory, NETWORK, NAME], stdout=log, stderr=log)
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        yield Node(directory, _first_process(outer, directory / "boot.log"), processes)
    finally:
        if outer.poll() is None:
            # Not `unshare` while it has a child: without it nobody would wait for process 1.
            for pid in _children(outer) or [outer.pid]:
                os.kill(pid, signal.SIGKILL)
        for process in (outer, *processes.values()):
            process.wait(END_S)


def _children(process: subprocess.Popen[bytes]) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def _first_process(outer: subprocess.Popen[bytes], log: Path) -> int:
    """Return the pid of process 1 of the node, as soon as it is tini."""

    def has_booted() -> bool:
        assert outer.poll() is None, log.read_text()
        return any(Path(f"/proc/{pid}/comm").read_text() == "tini\n" for pid in _children(outer))

    wait_until(has_booted, "the first process of the node", pause_s=0.05)
    return _children(outer)[0]


def _write_files(directory: Path) -> None:
    for name in ("cni", "volumes"):
        (directory / name).mkdir()
    (directory / "containerd.toml").write_text(CONTAINERD)
    (directory / "cni/pods.conflist").write_text(json.dumps(CNI))
    (directory / "kubelet.yaml").write_text(yaml.safe_dump(KUBELET))
    (directory / "resolv.conf").write_text(f"nameserver {ADDRESS}\n")
    (directory / "Corefile").write_text(COREFILE)
    accounts = {"admin": ("admin", "system:masters"), "kubelet": (f"system:node:{NAME}", "system:nodes")}
    tokens = {name: secrets.token_hex(16) for name in accounts}
    lines = [f'{tokens[name]},{user},{user},"{group}"\n' for name, (user, group) in accounts.items()]
    (directory / "tokens.csv").write_text("".join(lines))
    for name, token in tokens.items():
        (directory / f"{name}.conf").write_text(yaml.safe_dump(_kubeconfig(token)))
    subprocess.run(["openssl", "genrsa", "-out", directory / "accounts.key", "2048"], check=True, capture_output=True)


def _kubeconfig(token: str) -> dict[str, object]:
    server = {"server": "https://127.0.0.1:6443", "insecure-skip-tls-verify": True}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "one", "cluster": server}],
        "users": [{"name": "one", "user": {"token": token}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "current-context": "one",
    }


def _etcd(name: str, host: str, port: int) -> list[str]:
    address, peers = f"http://{host}:{port}", f"http://127.0.0.1:{port + 1000}"
    words = ["etcd", "--name", name, "--data-dir", f"/node/{name}", "--listen-client-urls", address]
    words += ["--advertise-client-urls", address, "--listen-peer-urls", peers]
    return [*words, "--initial-advertise-peer-urls", peers, "--initial-cluster", f"{name}={peers}"]


def _start_control_plane(node: Node) -> None:
    node.start("etcd", *_etcd("etcd", "127.0.0.1", ETCD_PORT))
    node.start("brokers-etcd", *_etcd("brokers-etcd", ADDRESS, BROKERS_ETCD_PORT))
    key = "--service-account-key-file=/node/accounts.key"
    node.start(
        "kube-apiserver",
        "kube-apiserver",
        f"--etcd-servers=http://127.0.0.1:{ETCD_PORT}",
        f"--service-cluster-ip-range={SERVICES}",
        f"--advertise-address={ADDRESS}",
        "--cert-dir=/node/api",
        "--token-auth-file=/node/tokens.csv",
        "--authorization-mode=Node,RBAC",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-account-signing-key-file=/node/accounts.key",
        key,
    )
    node.wait_for("kubectl", "--kubeconfig=/node/admin.conf", "get", "--raw", "/readyz")
    node.start(
        "kube-controller-manager",
        "kube-controller-manager",
        "--kubeconfig=/node/admin.conf",
        "--leader-elect=false",
        "--root-ca-file=/node/api/apiserver.crt",
        "--service-account-private-key-file=/node/accounts.key",
    )
    node.start("kube-scheduler", "kube-scheduler", "--kubeconfig=/node/admin.conf", "--leader-elect=false")
    node.start("coredns", "coredns", "-conf", "/node/Corefile")


def _start_node(node: Node) -> None:
    node.start("containerd", "containerd", "--config", "/node/containerd.toml")
    node.wait_for("ctr", "version")
    node.start(
        "kubelet",
        "kubelet",
        "--config=/node/kubelet.yaml",
        "--kubeconfig=/node/kubelet.conf",
        "--root-dir=/node/kubelet",
        "--cert-dir=/node/kubelet-certificates",
        f"--node-ip={ADDRESS}",
        f"--hostname-override={NAME}",
    )
    node.start(
        "kube-proxy",
        "kube-proxy",
        "--kubeconfig=/node/admin.conf",
        "--proxy-mode=nftables",
        f"--hostname-override={NAME}",
        "--oom-score-adj=0",
        # Limits of the machine's table of connections, which a node in a namespace cannot set.
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
    )
    node.wait_for("kubectl", "--kubeconfig=/node/admin.conf", "get", "node", NAME)
    ready = ("--for=condition=Ready", f"node/{NAME}")
    node.wait_for("kubectl", "--kubeconfig=/node/admin.conf", "wait", "--timeout=1s", *ready)


@contextlib.contextmanager
def _same_settings() -> Iterator[None]:
    """Give the machine back the settings of its kernel that the kubelet changes."""
    files = [Path("/proc/sys", name) for name in CHANGED_SETTINGS]
    before = {file: file.read_text() for file in files if file.exists()}
    try:
        yield
    finally:
        for file, text in before.items():
            file.write_text(text)


@contextlib.contextmanager
def _no_cgroups_left() -> Iterator[None]:
    """Remove the cgroups of the pods, which outlive their processes."""
    places = [place / "kubepods" for place in cgroups().values()]
    try:
        yield
    finally:
        wait_until(lambda: all(map(_is_removed, places)), "the end of all pods", pause_s=0.2)


def _is_removed(place: Path) -> bool:
    for directory, _, _ in os.walk(place, topdown=False):
        with contextlib.suppress(OSError):  # its processes are about to end
            os.rmdir(directory)
    return not place.exists()
