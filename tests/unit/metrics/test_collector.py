"""From snapshots to samples: every declared metric can be produced, and only those."""

import collections

import attrs
import pytest
from prometheus_client.parser import text_string_to_metric_families

from rocketpy.config.relations import METRICS_NAMES
from rocketpy.failover.rules.states import State
from rocketpy.metrics.collector import NAMES, BrokerCollector, NamesrvCollector
from rocketpy.metrics.counters import PLACES
from rocketpy.metrics.families import registry_of
from rocketpy.metrics.replication import FOLLOWING_STATES, MEMBER_STATES
from rocketpy.metrics.snapshot import (
    AccessSnapshot,
    ConsumptionSnapshot,
    MemberSnapshot,
    NamesrvSnapshot,
    PoolSnapshot,
    RegistrationSnapshot,
    ReplicationSnapshot,
    RingSnapshot,
    SlaveSnapshot,
    Snapshot,
    StoreSnapshot,
    TableSnapshot,
    TlsSnapshot,
    TopicSnapshot,
    TransactionSnapshot,
    WorkerSnapshot,
)
from rocketpy.metrics.table import NAMESRV_METRICS, QUEUE_METRICS

RUNTIME = {
    "commitLogDiskRatio": "0.5",
    "brokerVersionDesc": "V4_9_8",
    "brokerVersion": "409",
    "bootTimestamp": "1700000000000",
    "putMessageDistributeTime": "[<=0ms]:5 [0~10ms]:4 [10~50ms]:3 [50~100ms]:2 [100~200ms]:1 [200~500ms]:0 "
    "[500ms~1s]:0 [1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:7 ",
    "commitLogDirCapacity": "Total : 98.5 GiB, Free : 512.0 MiB.",
    "remainHowManyDataToFlush": "12.3 KiB",
    "putTps": "1.5 2.5 3.5",
    "getFoundTps": "1.0 2.0 3.0",
    "getMissTps": "1.0 2.0 3.0",
    "getTotalTps": "1.0 2.0 3.0",
    "getTransferedTps": "1.0 2.0 3.0",
}


def full_runtime() -> dict[str, str]:
    """The entries of code 28; those that no test asks about are 42."""
    return collections.defaultdict(lambda: "42", RUNTIME)


def worker(name: str, role: str, **counts: int) -> WorkerSnapshot:
    counters = [0] * 128
    for count, value in counts.items():
        counters[PLACES[count]] = value
    return WorkerSnapshot(
        name=name,
        role=role,
        counters=counters,
        starts=3,
        ready=True,
        heartbeat_age_s=0.5,
        rss_bytes=1000,
        pss_bytes=500,
    )


def full_snapshot() -> Snapshot:
    return Snapshot(
        cluster="c",
        broker="b",
        broker_addr="10.0.0.1:10911",
        version="1.0",
        clock_ms=1_700_000_000_500,
        start_s=1_690_000_000,
        workers=[
            worker("selector-0", "selector", CONNECTIONS_OPENED=5, CONNECTIONS_CLOSED=2),
            worker("codec-0", "codec"),
            worker("send", "send", MESSAGES_PUT=10, TRANSACTIONS_COMMITTED=4, PUT_LATENCY=8),
            worker("pull", "pull", SUSPENDED=3),
            worker("tls-0", "tls", TLS_COMPLETED=4),
            worker("store", "store", FLUSH_NS=2_500_000_000),
            worker("replicator", "replicator", STREAMS=1),
        ],
        tables=[TableSnapshot("topics", 3, 100, 1)],
        rings=[RingSnapshot("selector-0", "codec-0", 10, 1024)],
        store=StoreSnapshot(
            min_phy_offset=0,
            published_phy_offset=40,
            durable_phy_offset=30,
            dispatched_phy_offset=35,
            replicated_phy_offset=20,
            oldest_age_ms=900,
        ),
        topic_count=3,
        permission=6,
        producer_clients={("java", "v4_9_7"): 2},
        consumer_clients={("G", "go", "v4_9_7", "push", False): 3},
        topics=[
            TopicSnapshot(
                topic="T",
                queues=4,
                min_offset_sum=5,
                max_offset_sum=25,
                put_tps=1.5,
                put_bytes_tps=99.0,
                put_total=70,
                put_bytes_total=7000,
            ),
            TopicSnapshot(topic="%RETRY%G", queues=1, min_offset_sum=0, max_offset_sum=3),
            TopicSnapshot(topic="%DLQ%G", queues=1, min_offset_sum=0, max_offset_sum=2),
        ],
        groups=2,
        differing_groups={"G": 2},
        backlog_alarms=1,
        consumption=[
            ConsumptionSnapshot(
                group="G",
                topic="T",
                consumer_offset_sum=20,
                lag_messages=5,
                online_consumers=2,
                get_tps=1.0,
                get_bytes_tps=10.0,
                get_total=60,
                get_bytes_total=6000,
                send_back_last_minute=1,
                lag_ms=700,
                behind_bytes=9,
            ),
            ConsumptionSnapshot(group="G", topic="%RETRY%G", consumer_offset_sum=1, lag_messages=2),
            ConsumptionSnapshot(group="B", topic="T", consumer_offset_sum=1, lag_messages=24, is_broadcasting=True),
        ],
        pools=[PoolSnapshot("query", 3, 20_000, 0.5)],
        producers={"PG": 2},
        consumers=[("10.0.0.9:5", "10.0.0.1:10911", "G"), ("10.0.0.9:6", "10.0.0.1:10911", "G")],
        put_tps=1.0,
        get_tps=2.0,
        runtime=full_runtime(),
        faults={"HEART_BEAT": 2},
        limits={"untracked": 1, "account_busy": 2, "address_blocked": 3},
        access=AccessSnapshot(accounts=3, refused={"role": 2}, reload_failures=1, failing_files=1),
        registration=RegistrationSnapshot(topics=1, bytes=2, parts=3, failures=4, last_success_ms=5_000),
        replication=ReplicationSnapshot(
            kept_files=1,
            kept_bytes=77,
            member=MemberSnapshot(state="master", epoch=7, in_sync=2, changes=4, lease_s=1.5),
            slaves=[
                SlaveSnapshot(
                    address="10.0.0.2:40000",
                    state="stalled",
                    acked_phy_offset=30,
                    lag_bytes=10,
                    lag_s=3.5,
                    sent_bytes=35,
                ),
                SlaveSnapshot(
                    address="10.0.0.3:40000",
                    state="connected",
                    acked_phy_offset=None,
                    lag_bytes=None,
                    lag_s=0.0,
                    sent_bytes=0,
                ),
                SlaveSnapshot(
                    address="10.0.0.2:40001",
                    state="replicating",
                    acked_phy_offset=36,
                    lag_bytes=4,
                    lag_s=0.5,
                    sent_bytes=41,
                ),
                SlaveSnapshot(
                    address="[fd00::7]:40000",
                    state="replicating",
                    acked_phy_offset=40,
                    lag_bytes=0,
                    lag_s=0.0,
                    sent_bytes=45,
                ),
            ],
            sent_bytes=99,
            connections=3,
            closed={"silent": 1},
            following="searching",
        ),
        transactions=TransactionSnapshot(open=7, oldest_age_ms=1_500, checks=9, unreachable=2),
    )


def scrape(snapshot: Snapshot) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """What Prometheus would read: (name, labels sorted) to value."""
    text = BrokerCollector(lambda: snapshot).text(is_openmetrics=False).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def named(values: dict[tuple[str, tuple[tuple[str, str], ...]], float], name: str, **labels: str) -> float:
    [value] = [
        value for (sample, have), value in values.items() if sample == name and labels.items() <= dict(have).items()
    ]
    return value


def test_every_declared_metric_is_produced_with_its_labels_and_no_other() -> None:
    """Holds: admin, statistics, metrics and alarms; trap, exporters read code 28 without checks."""
    families = {family.name: family for family in registry_of(BrokerCollector(full_snapshot)).collect()}
    declared = [metric for rows in NAMES.values() for metric in rows]
    assert families.keys() == {metric.name for metric in declared}
    for metric in declared:
        family = families[metric.name]
        assert family.type == metric.kind.value
        for sample in family.samples:
            assert [label for label in sample.labels if label != "le"] == list(metric.labels)


def test_transactions() -> None:
    values = scrape(full_snapshot())
    assert named(values, "rocketpy_transaction_open_messages") == 7
    assert named(values, "rocketpy_transaction_oldest_open_seconds") == 1.5
    assert named(values, "rocketpy_transaction_checks_total") == 9
    nothing = TransactionSnapshot(open=0, oldest_age_ms=None, checks=0, unreachable=0)
    none_open = attrs.evolve(full_snapshot(), transactions=nothing)
    assert not [name for name, _ in scrape(none_open) if name == "rocketpy_transaction_oldest_open_seconds"]


def test_names_are_declared_once() -> None:
    names = [metric.name for rows in (*NAMES.values(), NAMESRV_METRICS, QUEUE_METRICS) for metric in rows]
    assert len(names) == len(set(names))


def test_only_the_chosen_names_are_shown() -> None:
    """A property names them."""
    assert NAMES.keys() == METRICS_NAMES
    for name, rows in NAMES.items():
        shown = registry_of(BrokerCollector(full_snapshot, [name])).collect()
        assert {family.name for family in shown} == {metric.name for metric in rows}


# As a broker of RocketMQ 5.x shows them; NODE stands for the labels that each has.
ROCKETMQ5 = """
rocketmq_processor_watermark{NODE,processor="query_message"} 3.0
rocketmq_broker_permission{NODE} 6.0
rocketmq_topic_number{NODE} 3.0
rocketmq_consumer_group_number{NODE} 2.0
rocketmq_messages_in_total{NODE,topic="T",message_type="normal",is_system="false"} 70.0
rocketmq_throughput_in_total{NODE,topic="T",message_type="normal",is_system="false"} 7000.0
rocketmq_messages_out_total{NODE,topic="T",consumer_group="G",is_system="false"} 60.0
rocketmq_throughput_out_total{NODE,topic="T",consumer_group="G",is_system="false"} 6000.0
rocketmq_producer_connections{NODE,language="java",version="v4_9_7",protocol_type="remoting"} 2.0
rocketmq_consumer_connections{NODE,consumer_group="G",language="go",version="v4_9_7",consume_mode="push",protocol_type="remoting",is_system="false"} 3.0
rocketmq_consumer_lag_messages{NODE,consumer_group="G",topic="T",is_retry="false",is_system="false"} 5.0
rocketmq_consumer_lag_messages{NODE,consumer_group="G",topic="%RETRY%G",is_retry="true",is_system="false"} 2.0
rocketmq_consumer_lag_latency{NODE,consumer_group="G",topic="T",is_retry="false",is_system="false"} 700.0
rocketmq_send_to_dlq_messages_total{NODE,consumer_group="G",topic="%DLQ%G",is_system="false"} 2.0
rocketmq_commit_messages_total{NODE,topic=""} 4.0
rocketmq_rollback_messages_total{NODE,topic=""} 0.0
rocketmq_half_messages{NODE,topic=""} 7.0
rocketmq_rpc_latency_bucket{NODE,protocol_type="remoting",request_code="send_message_v2",response_code="success",is_long_polling="false",result="success",le="0.001"} 8.0
rocketmq_rpc_latency_bucket{NODE,protocol_type="remoting",request_code="send_message_v2",response_code="success",is_long_polling="false",result="success",le="+Inf"} 8.0
rocketmq_storage_size{NODE,storage_type="local",storage_medium="disk"} 40.0
rocketmq_storage_flush_behind_bytes{NODE,storage_type="local",storage_medium="disk"} 10.0
rocketmq_storage_dispatch_behind_bytes{NODE,storage_type="local",storage_medium="disk"} 5.0
rocketmq_storage_message_reserve_time{NODE,storage_type="local",storage_medium="disk"} 900.0
rocketmq_storage_message_reserve_time_milliseconds{NODE,storage_type="local",storage_medium="disk"} 900.0
rocketmq_throughput_in_bytes_total{NODE,topic="T",message_type="normal",is_system="false"} 7000.0
rocketmq_timing_messages{NODE,topic=""} 0.0
"""  # noqa: E501


def test_values_under_the_names_of_rocketmq_5() -> None:
    collector = BrokerCollector(full_snapshot, ["rocketmq5", "rocketmq5_units"])
    shown = samples_of(collector.text(is_openmetrics=False).decode())
    expected = samples_of(ROCKETMQ5.replace("NODE", 'cluster="c",node_type="broker",node_id="b"'))
    assert len(expected) == 26 and expected - shown == set()
    topics = {dict(labels)["topic"] for name, labels, _ in shown if name == "rocketmq_messages_in_total"}
    assert topics == {"T"}, "neither retries nor dead letters"


def samples_of(text: str) -> set[tuple[str, frozenset[tuple[str, str]], float]]:
    families = text_string_to_metric_families(text)
    return {(s.name, frozenset(s.labels.items()), s.value) for family in families for s in family.samples}


def test_values() -> None:
    values = scrape(full_snapshot())
    assert named(values, "rocketpy_remoting_connections", worker="selector-0") == 3
    assert named(values, "rocketpy_clock_seconds") == 1_700_000_000.5
    assert named(values, "rocketpy_broker_start_time_seconds") == 1_690_000_000
    assert named(values, "rocketpy_send_messages_total", worker="send") == 10
    assert named(values, "rocketpy_pull_suspended_requests", worker="pull") == 3
    assert named(values, "rocketpy_store_flush_seconds_total", worker="store") == 2.5
    assert named(values, "rocketpy_worker_restarts_total", worker="send") == 2
    assert named(values, "rocketpy_pool_waiting_requests", pool="query") == 3
    assert named(values, "rocketpy_pool_head_wait_seconds", pool="query") == 0.5
    assert named(values, "rocketpy_topic_messages", topic="T") == 20
    assert named(values, "rocketpy_consumer_lag_messages", group="G", topic="T") == 5


def test_values_under_the_exporters_names() -> None:
    values = scrape(full_snapshot())
    assert named(values, "rocketmq_broker_tps", cluster="c", brokerIP="10.0.0.1:10911", broker="b") == 1.0
    assert named(values, "rocketmq_broker_commitlog_diff", brokerIP="10.0.0.2", broker="b") == 10
    assert named(values, "rocketmq_broker_commitlog_diff", brokerIP="fd00::7", cluster="c") == 0
    assert named(values, "rocketmq_producer_offset", topic="T") == 25
    assert named(values, "rocketmq_topic_retry_offset", topic="%RETRY%G") == 3
    assert named(values, "rocketmq_topic_dlq_offset", group="G") == 2
    assert named(values, "rocketmq_consumer_offset", topic="T", group="G") == 20
    assert named(values, "rocketmq_group_diff") == 5  # the broadcasting group is not there
    assert named(values, "rocketmq_group_diff", countOfOnlineConsumers="2", msgModel="1") == 5
    assert named(values, "rocketmq_group_retrydiff") == 2
    assert named(values, "rocketmq_group_count", caddr="10.0.0.9:5") == 1
    assert named(values, "rocketmq_brokeruntime_pmdt_10stomore") == 7
    assert named(values, "rocketmq_brokeruntime_pmdt_0ms", des="V4_9_8", brokerHost="") == 5
    assert named(values, "rocketmq_brokeruntime_put_tps60") == 2.5
    assert named(values, "rocketmq_brokeruntime_commitlogdir_capacity_free") == 512 * 2**20
    assert named(values, "rocketmq_brokeruntime_commitlogdir_capacity_total") == 98.5 * 2**30
    assert named(values, "rocketmq_brokeruntime_remain_howmanydata_toflush") == 12.3


@pytest.mark.parametrize("bad", ["", "null", "x y", "Total : many GiB", "Total : 1.0 parsec, Free : 1.0 parsec."])
def test_an_entry_that_is_no_number_takes_only_itself_away(bad: str) -> None:
    runtime = full_runtime() | {"commitLogDirCapacity": bad, "putTps": bad, "putMessageDistributeTime": bad}
    names = {name for name, _ in scrape(Snapshot(cluster="c", broker="b", broker_addr="a", runtime=runtime))}
    assert "rocketmq_brokeruntime_commitlogdir_capacity_free" not in names
    assert "rocketmq_brokeruntime_put_tps10" not in names
    assert "rocketmq_brokeruntime_commitlog_maxoffset" in names


def test_rates_of_a_young_broker_are_fewer_words() -> None:
    runtime = {"putTps": "1.5  "}
    names = {name for name, _ in scrape(Snapshot(cluster="c", broker="b", broker_addr="a", runtime=runtime))}
    assert "rocketmq_brokeruntime_put_tps10" in names
    assert "rocketmq_brokeruntime_put_tps60" not in names


def test_what_is_unknown_is_left_out() -> None:
    values = scrape(Snapshot(cluster="c", broker="b", broker_addr="a"))
    assert {name for name, _ in values} == {"rocketpy_build_info"}


def test_a_counter_of_another_role_is_shown_when_it_counts() -> None:
    snapshot = Snapshot(
        cluster="c",
        broker="b",
        broker_addr="a",
        workers=[worker("manager", "manager", BYTES_IN=7), worker("send", "send")],
    )
    values = scrape(snapshot)
    assert named(values, "rocketpy_remoting_received_bytes_total") == 7
    assert named(values, "rocketpy_remoting_received_bytes_total", worker="manager") == 7


def test_a_shorter_counter_block_counts_as_zero() -> None:
    short = WorkerSnapshot(name="send", role="send", counters=(1, 2), starts=1, ready=False)
    values = scrape(Snapshot(cluster="c", broker="b", broker_addr="a", workers=[short]))
    assert named(values, "rocketpy_send_messages_total") == 0
    assert named(values, "rocketpy_worker_restarts_total") == 0
    assert named(values, "rocketpy_worker_ready", role="send") == 0


def test_the_latency_histogram() -> None:
    counters = [0] * 128
    first = PLACES["PUT_LATENCY"]
    counters[first + 0] = 1  # up to 1 us
    counters[first + 7] = 2  # up to 128 us
    counters[first + 23] = 4  # all that took longer
    counters[first + 24] = 3_000_000
    send = WorkerSnapshot(name="send", role="send", counters=counters, starts=1, ready=True)
    values = scrape(Snapshot(cluster="c", broker="b", broker_addr="a", workers=[send]))
    name = "rocketpy_send_latency_seconds"
    assert named(values, f"{name}_bucket", le="1e-06") == 1
    assert named(values, f"{name}_bucket", le="6.4e-05") == 1
    assert named(values, f"{name}_bucket", le="0.000128") == 3
    assert named(values, f"{name}_bucket", le="+Inf") == 7
    assert named(values, f"{name}_count") == 7
    assert named(values, f"{name}_sum") == 3.0
    assert sum(1 for sample, _ in values if sample == f"{name}_bucket") == 24


def test_the_name_server() -> None:
    snapshot = NamesrvSnapshot(
        brokers=2,
        clusters=1,
        topics=7,
        connections=3,
        requests={"REGISTER_BROKER": 9},
        rss_bytes=1,
        faults={"a connection": 1},
        tls=TlsSnapshot(handshakes=5, plain=0, refused={"plain": 2}, reloads=1, reload_failures=0, not_after_s=2e9),
        access=AccessSnapshot(accounts=3, refused={"signature": 4}, reload_failures=2, failing_files=1),
    )
    families = {family.name: family for family in registry_of(NamesrvCollector(lambda: snapshot)).collect()}
    assert families.keys() == {metric.name for metric in NAMESRV_METRICS}
    [sample] = families["rocketpy_namesrv_requests"].samples
    assert (sample.name, sample.labels, sample.value) == (
        "rocketpy_namesrv_requests_total",
        {"code": "REGISTER_BROKER"},
        9,
    )
    [refused] = families["rocketpy_namesrv_tls_refused"].samples
    assert (refused.labels, refused.value) == ({"reason": "plain"}, 2)
    reloads = families["rocketpy_namesrv_tls_reloads"].samples
    assert [(one.labels["result"], one.value) for one in reloads] == [("loaded", 1), ("failed", 0)]
    [refused] = families["rocketpy_namesrv_access_refused"].samples
    assert (refused.labels, refused.value) == ({"reason": "signature"}, 4)
    public = registry_of(NamesrvCollector(lambda: attrs.evolve(snapshot, access=None))).collect()
    assert {name for name in families if "_access_" in name} == families.keys() - {family.name for family in public}
    plain = registry_of(NamesrvCollector(lambda: attrs.evolve(snapshot, tls=None))).collect()
    assert {name for name in families if "_tls_" in name} == families.keys() - {family.name for family in plain}


def test_slaves_of_a_master() -> None:
    read = scrape(full_snapshot())
    stalled, new, ipv6 = (("slave", "10.0.0.2"),), (("slave", "10.0.0.3"),), (("slave", "fd00::7"),)
    assert read["rocketpy_ha_lag_bytes", stalled] == 10 and read["rocketpy_ha_ack_offset_bytes", stalled] == 30
    assert read["rocketpy_ha_lag_seconds", stalled] == 3.5
    assert ("rocketpy_ha_lag_bytes", new) not in read, "it has reported nothing"
    assert read["rocketpy_ha_lag_bytes", ipv6] == 0
    assert (
        read["rocketpy_ha_slaves", (("state", "stalled"),)]
        == read["rocketpy_ha_slaves", (("state", "connected"),)]
        == 1
    )
    assert read["rocketpy_ha_slaves", (("state", "replicating"),)] == 2
    assert read["rocketpy_ha_connections_closed_total", (("reason", "silent"),)] == 1
    assert read["rocketpy_ha_transfer_bytes_total", ()] == 99


def test_the_state_of_a_slave_is_one_of_three() -> None:
    read = scrape(full_snapshot())
    found = {state: read["rocketpy_ha_following", (("state", state),)] for state in FOLLOWING_STATES}
    assert found == {"searching": 1, "following": 0, "halted": 0}
    master = attrs.evolve(
        full_snapshot(), replication=ReplicationSnapshot(slaves=(), sent_bytes=0, connections=0, closed={})
    )
    assert not any(name == "rocketpy_ha_following" for name, _ in scrape(master))


def test_the_states_of_members_are_those_of_failover() -> None:
    assert tuple(state.value.lower() for state in State) == MEMBER_STATES


@pytest.mark.parametrize("epoch", [7, -1])
def test_a_member_with_automatic_failover(epoch: int) -> None:
    member = MemberSnapshot(state="master", epoch=epoch, in_sync=2, changes=4, lease_s=1.5)
    replication = ReplicationSnapshot(slaves=(), sent_bytes=0, connections=0, closed={}, member=member)
    read = scrape(attrs.evolve(full_snapshot(), replication=replication))
    states = {state: read["rocketpy_ha_member", (("state", state),)] for state in MEMBER_STATES}
    assert [state for state, is_there in states.items() if is_there] == ["master"]
    assert (read["rocketpy_ha_role_changes_total", ()], read["rocketpy_ha_lease_remaining_seconds", ()]) == (4, 1.5)
    epochs = [read.get((name, ())) for name in ("rocketpy_ha_epoch", "rocketpy_ha_in_sync_members")]
    assert epochs == ([7, 2] if epoch >= 0 else [None, None])


def test_what_was_cut_off_a_log() -> None:
    replication = ReplicationSnapshot(
        slaves=(), sent_bytes=0, connections=0, closed={}, kept_files=2, kept_bytes=5_000_000_000
    )
    read = scrape(attrs.evolve(full_snapshot(), replication=replication))
    assert (read["rocketpy_ha_diverged_files", ()], read["rocketpy_ha_diverged_bytes", ()]) == (2, 5_000_000_000)
    unknown = ReplicationSnapshot(slaves=(), sent_bytes=0, connections=0, closed={})
    assert ("rocketpy_ha_diverged_bytes", ()) not in scrape(attrs.evolve(full_snapshot(), replication=unknown))


def test_the_states_are_those_of_the_core() -> None:
    core = pytest.importorskip("rocketpy.native.core", exc_type=ImportError).lib
    states = (core.RP_FOLLOWING_SEARCHING, core.RP_FOLLOWING, core.RP_FOLLOWING_HALTED)
    assert states == (0, 1, 2) and len(FOLLOWING_STATES) == 3
