"""docs/run/kubernetes.md followed in a real Kubernetes of one node (`make test-kubernetes`).

The tests are steps of one cluster, in this order: each goes on with what the one before it left.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.support.certificates import Authority
from tests.support.kubernetes import node, programs
from tests.support.kubernetes.clients import Sending, read_all, sending
from tests.support.kubernetes.cluster import MEMBERS, NAMESPACE, Cluster, page_block, running_cluster
from tests.support.waiting import wait_until

BACK_S = 240.0  # until a lost pod is ready again
ACCOUNT_S = 150.0  # until the kubelet has written a changed secret, and a server has looked at it
ACCOUNTS = """accounts:
- {accessKey: operator, secretKey: secret-of-operator, admin: true}
- {accessKey: broker-account, secretKey: secret-of-brokers, defaultTopicPerm: PUB, defaultGroupPerm: SUB}
"""
ACCOUNT_ADDED = "- {accessKey: newcomer, secretKey: secret-of-newcomer, defaultTopicPerm: PUB}\n"
GROUPS = 3  # with that of test_a_third_group
# Of a client: all of its connections, and an account.
SECURED = {
    "ROCKETMQ_TLS": "true",
    "ROCKETMQ_TLS_INSECURE": "true",
    "ROCKETPY_ACCESS_KEY": "operator",
    "ROCKETPY_SECRET_KEY": "secret-of-operator",
}
# Stops all processes of a container but process 1, which has no hand in serving, and this one.
STOP_ALL = """
import contextlib, os, signal
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) not in (1, os.getpid()):
        with contextlib.suppress(PermissionError, ProcessLookupError):  # what the runtime is about to run for a probe
            os.kill(int(name), signal.SIGSTOP)
"""

pytestmark = pytest.mark.skipif(
    bool(programs.missing()) or not programs.PROGRAMS.exists(),
    reason=f"needs what `make test-kubernetes` builds, and: {', '.join(programs.missing())}",
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("kubernetes")) as made:
        yield made


def pod(cluster: Cluster, name: str) -> dict[str, Any]:
    """Return a pod; an empty one, if it is not there."""
    found = {each["metadata"]["name"]: each for each in cluster.get("pods")["items"]}
    return dict(found.get(name, {"metadata": {"uid": ""}, "status": {}}))


def is_ready(cluster: Cluster, name: str) -> bool:
    conditions = pod(cluster, name)["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def stays(cluster: Cluster, name: str) -> bool:
    """Return True if a pod is on a node and has not been told to end."""
    found = pod(cluster, name)
    return "nodeName" in found.get("spec", ()) and "deletionTimestamp" not in found["metadata"]


def restarts(cluster: Cluster, name: str) -> int:
    return sum(each["restartCount"] for each in pod(cluster, name)["status"].get("containerStatuses", ()))


def check_nothing_lost(cluster: Cluster, topic: str, sent: Sending, **variables: Any) -> None:
    print(f"{topic}: {sent}")
    assert sent.acknowledged, "nothing was acknowledged"
    assert not set(sent.acknowledged) - read_all(cluster, topic, **variables)


def test_the_page_installs_a_cluster(cluster: Cluster) -> None:
    cluster.run(page_block("Install", 1))
    output = cluster.run(page_block("Install", 2))
    assert "SEND_OK" in output, output
    cluster.wait_in_sync("broker-a", "broker-b")
    assert all(is_ready(cluster, f"{group}-{n}") for group in ("broker-a", "broker-b") for n in range(1, MEMBERS + 1))


def test_clients_in_the_cluster_send_and_consume(cluster: Cluster) -> None:
    cluster.make_topic("Parcels")
    with sending(cluster, "Parcels") as sent:
        time.sleep(5)
    check_nothing_lost(cluster, "Parcels", sent)
    assert not sent.failed, sent
    assert set(sent.acknowledged.values()) == {"broker-a", "broker-b"}


def test_metrics_of_every_pod(cluster: Cluster) -> None:
    for each in cluster.get("pods")["items"]:
        asked = f"http://{each['status']['podIP']}:5557/metrics"
        program = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())"
        assert "rocketpy_" in cluster.execute("namesrv-0", "python", "-c", program, asked)


def test_a_master_is_killed(cluster: Cluster) -> None:
    """Without a stop in order; another member takes over, and the pod comes back with its volume."""
    cluster.make_topic("Killed")
    name = cluster.master("broker-a")
    before = pod(cluster, name)
    claim = cluster.get("pvc", f"store-{name}")["spec"]["volumeName"]
    (container,) = before["status"]["containerStatuses"]
    with sending(cluster, "Killed") as sent:
        time.sleep(3)
        # The next pod waits: it could be back before the lease of the killed one has ended, and be elected again.
        cluster.kubectl("cordon", node.NAME)
        identity = container["containerID"].removeprefix("containerd://")
        cluster.node.run("ctr", "--namespace", "k8s.io", "tasks", "kill", "--all", "--signal", "SIGKILL", identity)
        cluster.kubectl("-n", NAMESPACE, "delete", "pod", name, "--grace-period=0", "--force")
        wait_until(lambda: cluster.master("broker-a") not in ("", name), "another master", BACK_S, pause_s=0.5)
        cluster.kubectl("uncordon", node.NAME)
        wait_until(lambda: pod(cluster, name)["metadata"]["uid"] != before["metadata"]["uid"], "a new pod", BACK_S)
        wait_until(lambda: is_ready(cluster, name), "the pod", BACK_S, pause_s=0.5)
        cluster.wait_in_sync("broker-a")
    assert cluster.get("pvc", f"store-{name}")["spec"]["volumeName"] == claim
    check_nothing_lost(cluster, "Killed", sent)


def test_a_rolling_restart(cluster: Cluster) -> None:
    cluster.make_topic("Rolled")
    with sending(cluster, "Rolled") as sent:
        cluster.kubectl("-n", NAMESPACE, "rollout", "restart", "statefulset/broker-a", "statefulset/namesrv")
        cluster.wait_ready()
        cluster.wait_in_sync("broker-a")
    check_nothing_lost(cluster, "Rolled", sent)


def test_a_changed_property_restarts_one_after_the_other(cluster: Cluster) -> None:
    cluster.make_topic("Changed")
    file = cluster.checkout / "deploy/kubernetes/broker-b/kustomization.yaml"
    changed = "      - ROCKETPY_MESSAGE_DELAY_LEVEL=1s 2s\n"
    file.write_text(file.read_text() + changed)
    uids = {name: pod(cluster, name)["metadata"]["uid"] for name in ("broker-a-1", "broker-b-1")}
    with sending(cluster, "Changed") as sent:
        cluster.run("kubectl apply -k deploy/kubernetes")
        cluster.wait_ready()
        cluster.wait_in_sync("broker-b")
    assert pod(cluster, "broker-a-1")["metadata"]["uid"] == uids["broker-a-1"]
    assert pod(cluster, "broker-b-1")["metadata"]["uid"] != uids["broker-b-1"]
    check_nothing_lost(cluster, "Changed", sent)


def test_a_drain_takes_one_member_at_a_time(cluster: Cluster) -> None:
    cluster.make_topic("Drained")
    chosen = "--pod-selector=app.kubernetes.io/instance=broker-a"
    with sending(cluster, "Drained") as sent:
        drained = cluster.attempt(cluster.commands / "kubectl", "drain", node.NAME, chosen, "--timeout=30s")
        assert drained.returncode != 0 and "violate the pod's disruption budget" in drained.stderr, drained
        here = [name for name in (f"broker-a-{n}" for n in range(1, MEMBERS + 1)) if stays(cluster, name)]
        assert len(here) == MEMBERS - 1, here
        cluster.kubectl("uncordon", node.NAME)
        cluster.wait_ready()
        cluster.wait_in_sync("broker-a")
    check_nothing_lost(cluster, "Drained", sent)


def test_a_broker_that_hangs_is_restarted(cluster: Cluster) -> None:
    """It is not ready before."""
    name = cluster.master("broker-b")
    before = restarts(cluster, name)
    cluster.execute(name, "python", "-c", STOP_ALL)
    wait_until(lambda: not is_ready(cluster, name), "a pod that is not ready", BACK_S, pause_s=0.5)
    wait_until(lambda: restarts(cluster, name) > before, "the restart by the liveness probe", 2 * BACK_S, pause_s=0.5)
    cluster.wait_in_sync("broker-b")


def test_no_pod_is_restarted_while_etcd_is_away(cluster: Cluster) -> None:
    """A group with all members in sync goes on without etcd, so no probe may end it."""
    cluster.make_topic("Alone")
    cluster.make_topic("Across")
    names = [each["metadata"]["name"] for each in cluster.get("pods")["items"]]
    before = {name: restarts(cluster, name) for name in names}
    with sending(cluster, "Across") as across:
        with cluster.node.paused("brokers-etcd"):
            with sending(cluster, "Alone") as alone:
                time.sleep(210)  # more than six periods of the liveness probe
            after = {name: restarts(cluster, name) for name in names}
            ready = {name: is_ready(cluster, name) for name in names}
        assert after == before and all(ready.values()), (before, after, ready)
        cluster.wait_in_sync("broker-a", "broker-b")
    check_nothing_lost(cluster, "Alone", alone)
    check_nothing_lost(cluster, "Across", across)
    # When etcd comes back, a master whose lease has run out there refuses sends until it has a new one.
    assert not alone.failed, alone


def test_a_third_group(cluster: Cluster) -> None:
    """As the page says: a copy of broker-b with -c for each -b."""
    cluster.run(
        "cd deploy/kubernetes; cp -r broker-b broker-c; sed -i 's/-b/-c/g' broker-c/kustomization.yaml; "
        "sed -i 's/^  - broker-b$/&\\n  - broker-c/' kustomization.yaml"
    )
    cluster.run("kubectl apply -k deploy/kubernetes")
    cluster.wait_ready()
    cluster.wait_in_sync("broker-c")


def test_a_lost_volume(cluster: Cluster) -> None:
    name = next(name for name, role in cluster.roles("broker-c").items() if role == "SLAVE")
    before = cluster.get("pvc", f"store-{name}")["spec"]["volumeName"]
    cluster.kubectl("-n", NAMESPACE, "delete", f"pvc/store-{name}", f"pod/{name}")
    wait_until(lambda: is_ready(cluster, name), "the pod", BACK_S, pause_s=0.5)
    assert cluster.get("pvc", f"store-{name}")["spec"]["volumeName"] != before
    cluster.wait_in_sync("broker-c")


def write_secrets(checkout: Path) -> None:
    """Write the files of the secrets: of TLS, of accounts, and of an administrator outside."""
    issued = Authority(checkout).issue("*.namesrv.rocketpy")
    files = (("tls.crt", issued.certificate), ("tls.key", issued.key), ("ca.crt", checkout / "ca.pem"))
    for name, source in files:
        (checkout / name).write_bytes(source.read_bytes())
    (checkout / "plain_acl.yml").write_text(ACCOUNTS)
    (checkout / "broker-account.yml").write_text("accessKey: broker-account\nsecretKey: secret-of-brokers\n")
    (checkout / "administrator.conf").write_text("accessKey=operator\nsecretKey=secret-of-operator\n")


def test_tls_and_accounts(cluster: Cluster) -> None:
    """Pods get ready, so their probes get through."""
    write_secrets(cluster.checkout)
    file = cluster.kustomization
    file.write_text(file.read_text().replace("components: []", "components: [tls, accounts]"))
    cluster.run(page_block("TLS and accounts", 0))
    cluster.wait_ready()
    cluster.wait_in_sync("broker-a", "broker-b", "broker-c")
    with sending(cluster, "Secured", SECURED) as sent:
        time.sleep(5)
    check_nothing_lost(cluster, "Secured", sent, variables=SECURED)


def test_a_client_without_tls_or_account_is_refused(cluster: Cluster) -> None:
    tls = {name: value for name, value in SECURED.items() if name.startswith("ROCKETMQ_")}
    account = {name: value for name, value in SECURED.items() if name not in tls}
    stranger = {**SECURED, "ROCKETPY_SECRET_KEY": "secret-of-nobody"}
    reasons = ((account, "closed before the response"), (tls, "No accessKey is configured"), (stranger, "signature"))
    for variables, reason in reasons:
        with sending(cluster, "Secured", variables) as sent:
            time.sleep(1)
        assert not sent.acknowledged, sent
        assert sent.failed and all(reason in text for text in sent.failed.values()), sent


def test_mqadmin_with_tls_and_accounts(cluster: Cluster) -> None:
    listed = cluster.run(page_block("TLS and accounts", 1))
    assert listed.count("DefaultCluster") == GROUPS * MEMBERS, listed
    made = cluster.run(page_block("TLS and accounts", 2))
    assert made.count("success") == GROUPS, made
    sends = page_block("TLS and accounts", 1).replace("clusterList", "sendMessage -t Orders -p hello")
    assert "SEND_OK" in cluster.run(sends)
    status = cluster.attempt_commands(page_block("TLS and accounts", 1).replace("clusterList", "haStatus -f /dev/null"))
    # Members that refuse it would be errors, beside the table.
    assert status.stdout.count("10911") == MEMBERS and "10911:" not in status.stderr, status
    # The brokers' account is no administrator's.
    makes = page_block("TLS and accounts", 1).replace("clusterList", "updateTopic -c DefaultCluster -t Others")
    refused = cluster.attempt_commands(makes)
    assert refused.returncode != 0 and "AclException" in refused.stdout + refused.stderr, refused


def test_a_changed_account(cluster: Cluster) -> None:
    """It is in effect without a restart."""
    names = [each["metadata"]["name"] for each in cluster.get("pods")["items"]]
    before = {name: (pod(cluster, name)["metadata"]["uid"], restarts(cluster, name)) for name in names}
    (cluster.checkout / "plain_acl.yml").write_text(f"{ACCOUNTS}{ACCOUNT_ADDED}")
    (cluster.checkout / "newcomer.conf").write_text("accessKey=newcomer\nsecretKey=secret-of-newcomer\n")
    words = page_block("TLS and accounts", 2).replace("administrator.conf", "newcomer.conf")
    words = words.replace("updateTopic", "sendMessage -p hello").replace("-c DefaultCluster ", "")
    assert cluster.attempt_commands(words).returncode != 0
    cluster.run(page_block("TLS and accounts", 3))
    wait_until(lambda: cluster.attempt_commands(words).returncode == 0, "the account", ACCOUNT_S, pause_s=2)
    after = {name: (pod(cluster, name)["metadata"]["uid"], restarts(cluster, name)) for name in names}
    assert after == before and all(is_ready(cluster, name) for name in names), (before, after)
