"""Loading: defaults, precedence, derived values, and one clear error for each kind of mistake."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rocketpy.config import (
    BrokerRole,
    BrokerSettings,
    FlushDiskType,
    Machine,
    NamesrvSettings,
    load_broker_config,
    load_namesrv_config,
    ring_count,
)
from rocketpy.errors import ConfigError
from rocketpy.message.names import reply_topic, topic_fault

ENVIRON = {"HOME": "/home/mq"}
TWO_CORES = Machine(2, "host-a", lambda: "10.1.2.3")

Load = Callable[..., BrokerSettings]
Texts = dict[str, str] | None


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load(text: str, overrides: Texts = None, environ: Texts = None) -> BrokerSettings:
        path = tmp_path / "broker.conf"
        path.write_text(text, encoding="utf-8")
        return load_broker_config(path, overrides, ENVIRON | (environ or {}), machine=TWO_CORES)

    return load


def test_defaults_of_a_broker_without_a_file() -> None:
    settings = load_broker_config(None, None, ENVIRON, machine=TWO_CORES)
    assert settings.broker.broker_name == "host-a"
    assert settings.broker_addr == "127.0.0.1:10911"
    assert settings.ha_server_addr == "127.0.0.1:10912"
    assert settings.vip_port == 10909
    assert settings.broker.namesrv_addr is None
    assert settings.store.store_path_root_dir == "/home/mq/store"
    assert settings.store.store_path_commit_log == "/home/mq/store/commitlog"
    assert settings.store.flush_disk_type is FlushDiskType.ASYNC_FLUSH
    assert settings.server.bind_address == "127.0.0.1"
    assert (settings.rocketpy.selector_workers, settings.rocketpy.codec_workers) == (1, 0)
    assert settings.update_path == Path("/home/mq/store/config/broker.properties")
    assert settings.notes == ()


def test_defaults_of_a_name_server() -> None:
    settings = load_namesrv_config(None, None, ENVIRON, machine=TWO_CORES)
    assert settings.server.listen_port == 9876
    assert settings.namesrv.kv_config_path == "/home/mq/namesrv/kvConfig.json"
    assert settings.update_path == Path("/home/mq/namesrv/namesrv.properties")
    assert settings.rocketpy.metrics_port == 0


def test_the_file_of_a_java_broker(load: Load) -> None:
    settings = load(
        "brokerClusterName = DefaultCluster\nbrokerName = broker-a\nbrokerId = 0 \ndeleteWhen = 04\n"
        "fileReservedTime = 48\nbrokerRole = ASYNC_MASTER\nflushDiskType = SYNC_FLUSH\nautoCreateTopicEnable=FALSE\n"
    )
    assert settings.store.broker_role is BrokerRole.ASYNC_MASTER
    assert settings.is_sync_flush
    assert settings.store.file_reserved_time == 48
    assert settings.broker.auto_create_topic_enable is False


def test_name_servers_command_line_then_file_then_environment(load: Load) -> None:
    """Holds: cluster, four ways to name the name servers."""
    environ = {"NAMESRV_ADDR": "env:1"}
    assert load("", None, environ).broker.namesrv_addr == "env:1"
    assert load("namesrvAddr=file:2", None, environ).broker.namesrv_addr == "file:2"
    assert load("namesrvAddr=file:2", {"namesrvAddr": "arg:3"}, environ).broker.namesrv_addr == "arg:3"


@pytest.mark.parametrize(
    ("text", "broker_ip1"),
    [
        ("", "127.0.0.1"),
        ("bindAddress=192.168.0.7", "192.168.0.7"),
        ("bindAddress=0.0.0.0", "10.1.2.3"),
        ("bindAddress=::", "10.1.2.3"),
        ("bindAddress=0.0.0.0\nbrokerIP1=203.0.113.9", "203.0.113.9"),
    ],
)
def test_the_announced_address(load: Load, text: str, broker_ip1: str) -> None:
    """Holds: trap, the address that brokerIP1 becomes."""
    settings = load(text)
    assert settings.broker.broker_ip1 == broker_ip1
    assert settings.broker.broker_ip2 == broker_ip1


@pytest.mark.parametrize("load_any", [load_broker_config, load_namesrv_config])
@pytest.mark.parametrize(
    ("given", "is_told"),
    [
        ({}, False),
        ({"bindAddress": "::1"}, False),
        ({"bindAddress": "0.0.0.0"}, True),
        ({"bindAddress": ""}, True),
        ({"bindAddress": "10.0.0.1"}, True),
        ({"bindAddress": "0.0.0.0", "adminAddresses": "10.0.0.7"}, False),
        ({"bindAddress": "0.0.0.0", "aclEnable": "true", "rocketmqHome": "/etc/rocketpy"}, False),
    ],
)
def test_a_server_that_is_open_to_other_hosts_says_so(
    load_any: Callable[..., BrokerSettings | NamesrvSettings], given: dict[str, str], is_told: bool
) -> None:
    notes = [str(note) for note in load_any(None, given, ENVIRON).notes]
    assert len(notes) == is_told
    assert all("bindAddress: " in note and "set aclEnable, or name adminAddresses" in note for note in notes)


@pytest.mark.parametrize(
    ("text", "workers"),
    [
        ("", (1, 0)),
        ("serverSelectorThreads=2\nserverWorkerThreads=1", (2, 1)),
        ("serverSelectorThreads=3\nserverWorkerThreads=8", (2, 2)),  # one per core, and a note for each
        ("serverWorkerThreads=0", (1, 0)),
        ("serverSelectorThreads=2\nselectorWorkers=1\ncodecWorkers=0", (1, 0)),
    ],
)
def test_worker_counts(load: Load, text: str, workers: tuple[int, int]) -> None:
    settings = load(text)
    assert (settings.rocketpy.selector_workers, settings.rocketpy.codec_workers) == workers


def test_thread_counts_beyond_the_cores_are_noted(load: Load) -> None:
    notes = load("serverSelectorThreads=3\nserverWorkerThreads=8").notes
    assert [str(note) for note in notes] == [
        "line 1: serverSelectorThreads: 3 threads become 2 processes, one per core; or give selectorWorkers",
        "line 2: serverWorkerThreads: 8 threads become 2 processes, one per core; or give codecWorkers",
    ]
    assert load("serverWorkerThreads=8\ncodecWorkers=3").notes == ()


def test_the_default_ring_size_gives_way_to_many_workers(load: Load) -> None:
    settings = load("selectorWorkers=8\ncodecWorkers=8")
    assert settings.rocketpy.ring_size == 262_144
    assert ring_count(settings) * settings.rocketpy.ring_size <= settings.rocketpy.ring_memory_max
    own = settings.rocketpy
    assert own.ring_memory_max + own.kept_memory_bytes == own.shared_memory_max


def test_worker_counts_follow_the_cores() -> None:
    def workers(cores: int) -> tuple[int, int]:
        settings = load_broker_config(None, None, ENVIRON, machine=Machine(cores, "h", lambda: ""))
        return settings.rocketpy.selector_workers, settings.rocketpy.codec_workers

    assert [workers(cores) for cores in (1, 2, 4, 8, 16, 64)] == [(1, 0), (1, 0), (1, 1), (2, 2), (4, 4), (4, 4)]


def test_what_is_not_honoured_is_noted_with_its_line(load: Load) -> None:
    [note] = load("\nsendMessageThreadPoolNums=16\nwarmMapedFileEnable=false").notes
    assert str(note).startswith("line 2: sendMessageThreadPoolNums: not honoured: ")


def test_ha_port_is_forced_and_only_another_one_is_noted(load: Load) -> None:
    """Holds: trap, haListenPort, brokerId and misspelt values."""
    assert load("listenPort=20911\nhaListenPort=20912").notes == ()
    settings = load("listenPort=20911\nhaListenPort=30000")
    assert settings.store.ha_listen_port == 20912
    assert [note.key for note in settings.notes] == ["haListenPort"]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a=1\nbrokerNmae=x", 1, "a: unknown setting"),
        ("\nbrokerNmae=x", 2, "brokerNmae: unknown setting; did you mean brokerName?"),
        ("flushdisktype=SYNC_FLUSH", 1, "did you mean flushDiskType?"),
        ("flushDiskType=SYNC", 1, "'SYNC' is not allowed; it must be SYNC_FLUSH or ASYNC_FLUSH"),
        ("brokerRole=sync_master", 1, "'sync_master'"),
        ("autoCreateTopicEnable=yes", 1, "'yes' is not allowed; it must be true or false"),
        ("fileReservedTime=3d", 1, "'3d' is not allowed; it must be a whole number from 0 to 2147483647 (hours)"),
        ("listenPort=" + "9" * 10_000, 1, "is not allowed; it must be a whole number from 1 to 65535"),
        ("listenPort=\u0663", 1, "from 1 to 65535"),
        ("listenPort=0", 1, "from 1 to 65535"),
        ("listenPort=70000", 1, "from 1 to 65535"),
        ("listenPort=2", 1, "listenPort - 2 and listenPort"),
        ("ringSize=100000", 1, "a power of two"),
        ("ringSize=16777216", 1, "more than sharedMemoryMax"),
        ("brokerId=1", 1, "1 with brokerRole=ASYNC_MASTER"),
        ("brokerRole=SLAVE", None, "brokerId: 0 is the master's"),
        ("namesrvAddr=localhost", 1, "'localhost' is not host:port"),
        ("namesrvAddr=a:1,b:2", 1, "is not host:port"),
        ("namesrvAddr=a:99999", 1, "has no port from 1 to 65535"),
        ("mappedFileSizeCommitLog=1048576", 1, "cannot hold the largest message"),
        ("maxMessageSize=33554432", None, "frameMaxLength: 16777216 is less than"),
        ("deleteWhen=24", 1, "is not hours"),
        ("messageDelayLevel=1s 5x", 1, "is not like"),
        ("enableDLegerCommitLog=true", 1, "DLedger is not built"),
        ("aclEnable=true", 1, "needs rocketmqHome"),
        ("tls.server.mode=enforcing", 1, "needs tls.server.certPath"),
        ("tlsWorkers=1", 1, "1 with tls.server.mode=disabled"),
        ("metricsPort=10911", 1, "is listenPort as well"),
        ("metricsPort=10909", 1, "the VIP port"),
        ("metricsNames=rocketpy,exporters", 1, "'exporters' is none of exporter, rocketmq5"),
        ("brokerPermission=3", 1, "is none of 2"),
        ("haTruncateDiverged=true", 1, "needs haSecretFile"),
        ("brokerName=a b", 1, "must be letters"),
        ("brokerIP1=a.example.org", 1, "'a.example.org' is no numeric address"),
        ("brokerIP1=fe80::1%eth0", 1, "is no numeric address"),
        (
            "bindAddress=localhost",
            None,
            "brokerIP1: 'localhost' (of bindAddress) is no numeric address, which messages hold; set",
        ),
        ("traceTopicEnable=true\nmsgTraceTopicName=", 2, "'' is no legal name of a topic"),
        ("defaultTopicQueueNums=65537", 1, "from 1 to 65536"),
        ("brokerName=" + 128 * "b", 1, "128 characters, at most 127 are allowed"),
        ("brokerClusterName=" + 116 * "c", 1, "116 characters, at most 115 are allowed"),
        ("storePathCommitLog=/a,/b", 1, "several directories"),
        ("diskSpaceCleanForciblyRatio=95", 1, "must not exceed"),
        ("maxIndexNum=200000000", 1, "2 GiB"),
        ("expectConsumerNumUseFilter=200", 1, "need more than 512 filter bits"),
        ("brokerName=\\u00", 1, "hexadecimal"),
        ("logLevel=LOUD", 1, "is none of"),
    ],
)
def test_a_mistake_names_file_line_and_key(load: Load, text: str, line: int | None, message: str) -> None:
    """Holds: trap, haListenPort, brokerId and misspelt values."""
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert message in str(caught.value)
    assert str(caught.value.file).endswith("broker.conf")
    assert caught.value.line == line


def test_the_longest_names_have_topics(load: Load) -> None:
    """Fault: A broker took a name of 128 characters by updateBrokerConfig, and could not start again."""
    broker = load(f"brokerName={127 * 'b'}\nbrokerClusterName={115 * 'c'}").broker
    for topic in (broker.broker_name, broker.broker_cluster_name, reply_topic(broker.broker_cluster_name)):
        assert topic_fault(topic) is None
    assert topic_fault(f"{broker.broker_name}b") and topic_fault(reply_topic(f"{broker.broker_cluster_name}c"))


def test_a_mistake_on_the_command_line_blames_no_file(load: Load) -> None:
    with pytest.raises(ConfigError) as caught:
        load("brokerName=a", {"brokerNam": "b"})
    assert (caught.value.file, caught.value.line, caught.value.key) == (None, None, "brokerNam")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.conf: cannot be read: No such file"):
        load_broker_config(tmp_path / "none.conf", None, ENVIRON, machine=TWO_CORES)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "b.conf"
    path.write_bytes(b"a=\xff")
    with pytest.raises(ConfigError, match="not UTF-8 text at byte 2"):
        load_broker_config(path, None, ENVIRON, machine=TWO_CORES)


def test_no_home_directory() -> None:
    with pytest.raises(ConfigError, match=r"storePathRootDir: .*HOME is not set"):
        load_broker_config(None, None, {}, machine=TWO_CORES)
    load_broker_config(None, {"storePathRootDir": "/data"}, {}, machine=TWO_CORES)


def test_pools_become_processes(load: Load) -> None:
    assert load("").rocketpy.pull_workers == 1
    settings = load("pullMessageThreadPoolNums=2")
    assert (settings.rocketpy.pull_workers, settings.broker.pull_message_thread_pool_nums) == (2, 2)
    assert settings.notes == ()
    capped = load("pullMessageThreadPoolNums=16")
    assert capped.rocketpy.pull_workers == 2
    assert [str(note) for note in capped.notes] == [
        "line 1: pullMessageThreadPoolNums: 16 threads become 2 processes, one per core; or give pullWorkers"
    ]
    assert load("pullMessageThreadPoolNums=16\npullWorkers=3").rocketpy.pull_workers == 3
    alone = load("")
    assert (alone.rocketpy.query_workers, alone.broker.query_message_thread_pool_nums) == (0, 1), "the manager answers"
    asked = load("queryMessageThreadPoolNums=1")
    assert (asked.rocketpy.query_workers, asked.broker.query_message_thread_pool_nums) == (1, 1)
    assert load("queryMessageThreadPoolNums=10").rocketpy.query_workers == 2
    assert ring_count(load("pullWorkers=3\nqueryWorkers=2")) > ring_count(load("pullWorkers=3"))


def test_the_number_of_cpus_is_shown_where_the_reference_shows_it(load: Load) -> None:
    """Fault: getBrokerConfig showed 0 CPUs and 0 processes for queries."""
    assert "clientCallbackExecutorThreads=2" in load("").to_properties().splitlines()
    given = load("clientCallbackExecutorThreads=9")
    assert "clientCallbackExecutorThreads=9" in given.to_properties().splitlines()


def test_ring_count_without_codecs() -> None:
    settings = load_broker_config(None, {"codecWorkers": "0", "selectorWorkers": "2"}, ENVIRON, machine=TWO_CORES)
    assert ring_count(settings) == 2 * 3 + 3 * 2 + 8


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("fetchNamesrvAddrByAddressServer=true", "rmqAddressServerDomain"),
        ("rmqAddressServerDomain=http://x/", "not host or host:port"),
        ("rmqAddressServerDomain=ns.example\nrmqAddressServerSubGroup=a?b", "must be letters"),
        ("fetchNamesrvAddrByAddressServer=true\nrmqAddressServerDomain=[::1]:80", None),
    ],
)
def test_the_address_server(load: Load, text: str, fault: str | None) -> None:
    if fault is None:
        assert load(text).broker.fetch_namesrv_addr_by_address_server
        return
    with pytest.raises(ConfigError, match=fault):
        load(text)


def test_a_master_may_wait_for_slaves(load: Load) -> None:
    assert load("brokerRole=SYNC_MASTER").is_sync_master and not load("").is_sync_master


def test_a_slave_may_be_had(load: Load) -> None:
    settings = load("brokerRole=SLAVE\nbrokerId=1\nhaMasterAddress=10.0.0.1:10912")
    assert settings.is_slave and settings.broker.broker_id == 1
    assert settings.store.ha_master_address == "10.0.0.1:10912"
    assert ring_count(settings) == ring_count(load("")) + 1
