"""haStatus against a scripted pair."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rocketpy.codes import RequestCode
from rocketpy.remoting.bodies.broker import FollowedMaster, HaStatus, SlaveConnection
from rocketpy.remoting.bodies.route import BrokerData, ClusterInfo, KVTable
from tests.support.admin import Mqadmin
from tests.support.broker import free_ports
from tests.support.cluster import CLUSTER, FakeBroker, FakeCluster

HA_MASTER = HaStatus(
    master=True,
    role="SYNC_MASTER",
    commit_log_max_offset=5000,
    ha_connection_info=[
        SlaveConnection(
            addr="10.0.0.2:40000", state="replicating", slave_ack_offset=4000, diff=1000, lag_ms=12, in_sync=True
        )
    ],
)
HA_SLAVE = HaStatus(
    role="SLAVE",
    broker_id=1,
    commit_log_max_offset=4100,
    ha_client_runtime_info=FollowedMaster(activated=True, master_addr="10.0.0.1:10911"),
)


def ha_pair(cluster: FakeCluster) -> tuple[FakeBroker, FakeBroker]:
    """Brokers 0 and 1 of one name."""
    master, slave = cluster.add_broker(), cluster.add_broker("slave")
    data = BrokerData(broker_addrs={0: master.address, 1: slave.address}, broker_name="broker-a", cluster=CLUSTER)
    info = ClusterInfo(broker_addr_table={"broker-a": data}, cluster_addr_table={CLUSTER: ["broker-a"]})
    cluster.name_server.answer(RequestCode.GET_BROKER_CLUSTER_INFO, info)
    return master, slave


def test_ha_status_of_a_pair(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        for broker, status in zip(ha_pair(cluster), (HA_MASTER, HA_SLAVE), strict=True):
            broker.answer(RequestCode.GET_BROKER_HA_STATUS, status)

    lines = [line.split() for line in mqadmin("haStatus", "-b", "broker-a", script=script)]
    assert lines[1:3] == [
        ["broker-a", "0", "10.0.0.1:10911", "SYNC_MASTER", "5000", "0", "-"],
        ["broker-a", "1", "10.0.0.2:10911", "SLAVE", "4100", "900", "10.0.0.1:10911"],
    ]
    assert lines[5:] == [["10.0.0.1:10911", "10.0.0.2:40000", "replicating", "4000", "1000", "12", "yes"]]
    assert [line.split() for line in mqadmin("haStatus", "-b", "10.0.0.1:10911", script=script)][1] == [
        "-", "0", "10.0.0.1:10911", "SYNC_MASTER", "5000", "0", "-",
    ]  # fmt: skip
    mqadmin("haStatus", "-c", "Other", script=script, status=4)
    assert "no broker is registered in cluster Other" in mqadmin.error


def test_ha_status_of_brokers_of_the_reference(mqadmin: Mqadmin) -> None:
    """They do not know the request."""

    def script(cluster: FakeCluster) -> None:
        for broker, end in zip(ha_pair(cluster), ("5000", "4500"), strict=True):
            broker.answer(RequestCode.GET_BROKER_RUNTIME_INFO, KVTable(table={"commitLogMaxOffset": end}))

    rows = [line.split() for line in mqadmin("haStatus", script=script)[1:]]
    assert rows == [
        ["broker-a", "0", "10.0.0.1:10911", "MASTER", "5000", "0", "-"],
        ["broker-a", "1", "10.0.0.2:10911", "SLAVE", "4500", "500", "-"],
    ]


def test_ha_status_without_a_master(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        master, slave = ha_pair(cluster)
        master.unreachable = True
        slave.answer(RequestCode.GET_BROKER_HA_STATUS, HA_SLAVE)

    rows = [line.split() for line in mqadmin("haStatus", script=script, status=3)[1:]]
    assert rows == [["broker-a", "1", "10.0.0.2:10911", "SLAVE", "4100", "-", "10.0.0.1:10911"]]
    assert "broker-a: no master answers" in mqadmin.error


def test_ha_status_of_a_group_whose_etcd_is_away(mqadmin: Mqadmin, tmp_path: Path) -> None:
    pytest.importorskip("httpcore")
    file = tmp_path / "broker.conf"
    file.write_text(
        "brokerName=broker-a\nbrokerRole=SYNC_MASTER\nbrokerId=1\nhaMode=automatic\nhaMember=a\nhaMembers=a,b\n"
        f"haEtcdAddresses=http://127.0.0.1:{free_ports()[0]}\n"
    )

    def script(cluster: FakeCluster) -> None:
        for broker, status in zip(ha_pair(cluster), (HA_MASTER, HA_SLAVE), strict=True):
            broker.answer(RequestCode.GET_BROKER_HA_STATUS, status)

    lines = [line.split() for line in mqadmin("haStatus", "-f", str(file), script=script, status=3)]
    assert [line[:4] for line in lines[1:3]] == [
        ["broker-a", "0", "10.0.0.1:10911", "SYNC_MASTER"],
        ["broker-a", "1", "10.0.0.2:10911", "SLAVE"],
    ]
    assert "etcd does not tell who is in the group" in mqadmin.error


def test_the_group_of_a_file_is_asked_without_packages_of_asyncio(tmp_path: Path) -> None:
    """The extra failover brings the client for etcd without anyio, by which it would run under asyncio.
    Fault: `mqadmin haStatus -f` ended with a RuntimeError where nothing else had brought anyio."""
    file = tmp_path / "broker.conf"
    settings = ("haMode=automatic", "haMember=one", "haMembers=one,two", "haSecretFile=/nowhere", "brokerId=1")
    file.write_text("\n".join([*settings, "haEtcdAddresses=http://127.0.0.1:9", "namesrvAddr=127.0.0.1:9"]))
    program = (
        "import sys; sys.modules['anyio'] = None; from rocketpy.admin.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    words = [sys.executable, "-c", program, "haStatus", "-f", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr.startswith("etcd does not tell who is in the group"), done.stderr
