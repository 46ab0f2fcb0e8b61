"""`rocketpy bench run` against real brokers: each kind of load runs, and its result says what came of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy import aio
from rocketpy.admin.admin import Admin
from rocketpy.bench.load import HdrHistogram
from tests.support import preloaded
from tests.support.accounts import OPERATOR, SECRET, write_accounts, write_credentials
from tests.support.broker import running_broker
from tests.support.certificates import Authority

SHORT = {"testDurationMinutes": 0.02, "warmupDurationMinutes": 0.01, "partitionsPerTopic": 4}
SMALL_FILES = {"mappedFileSizeCommitLog": "16777216"}
STEADY = {"producerRate": 500, "producersPerTopic": 2, **SHORT}


def bench(directory: Path, scenario: dict[str, Any], *options: str) -> dict[str, Any]:
    """Run a scenario; return its result."""
    (directory / "s.yaml").write_text(json.dumps(scenario))
    words = [*preloaded.COMMAND, "bench", "run", str(directory / "s.yaml"), "-o", str(directory / "out.json"), *options]
    done = preloaded.run(words, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((directory / "out.json").read_text())
    return found


def count(run: dict[str, Any], kind: str) -> int:
    return int(HdrHistogram.decode(run["histograms"][kind]).get_total_count())


def test_a_steady_load_on_brokers_of_its_own(tmp_path: Path) -> None:
    scenario = {
        **STEADY,
        "topics": 2,
        "consumerPerSubscription": 2,
        "batchSize": [1, 4],
        "killAfter": True,
        "broker": SMALL_FILES,
    }
    found = bench(tmp_path, scenario, "--runs", "2", "--store", str(tmp_path))
    assert [point["name"] for point in found["points"]] == ["batchSize=1", "batchSize=4"]
    for batch, point in zip((1, 4), found["points"], strict=True):
        assert len(point["runs"]) == 2 and point["scenario"]["broker"] == SMALL_FILES
        for run in point["runs"]:
            assert run["errors"] == {}
            sent = run["figures"]["messages_per_s"] * run["seconds"]
            assert sent == pytest.approx(count(run, "send") * batch, rel=0.01)
            assert sent == pytest.approx(500 * run["seconds"], rel=0.5)
            assert count(run, "end_to_end") == pytest.approx(sent, rel=0.5)
            assert run["figures"]["send_p50_us"] <= run["figures"]["end_to_end_p99_us"]
            assert 0 < run["figures"]["recovery_s"] < 60
            assert run["figures"]["broker_pss_mib"] > 10 and run["intervals"]
    assert list(tmp_path.glob("rocketpy-bench-*")) == [], "the stores are removed"


def test_other_loads_on_a_cluster_that_runs(tmp_path: Path) -> None:
    scenarios: dict[str, dict[str, Any]] = {
        "two groups": {**STEADY, "subscriptionsPerTopic": 2},
        "delays": {**STEADY, "delayMillis": 2000, "testDurationMinutes": 0.08},
        "transactions": {**STEADY, "transactions": True},
        "idle clients": {**STEADY, "idleConnections": 300},
        "closed loop": {**SHORT, "inFlightPerProducer": 1, "subscriptionsPerTopic": 0},
        "drain": {**SHORT, "consumerBacklogSizeGB": 0.005, "producersPerTopic": 0, "testDurationMinutes": 1},
        "random reads": {**SHORT, "consumerBacklogSizeGB": 0.005, "randomReads": True},
    }
    with running_broker(SMALL_FILES) as broker:
        figures, arrived = {}, {}
        for name, scenario in scenarios.items():
            found = bench(tmp_path, scenario, "-n", broker.namesrv, "--runs", "1")
            (run,) = found["points"][0]["runs"]
            assert run["errors"] == {}, name
            figures[name] = run["figures"]
            arrived[name] = count(run, "end_to_end") if "end_to_end" in run["histograms"] else 0
        topics = aio.run(_topics, broker.namesrv)
    assert not [topic for topic in topics if topic.startswith("RocketpyBench")], "the topics are deleted"
    both = figures["two groups"]
    assert both["consumed_per_s"] == pytest.approx(2 * both["messages_per_s"], rel=0.5)
    # Brokers know times of delivery in whole milliseconds: messages may come early by a part of one, which counts as 0.
    assert arrived["delays"] > 500 and figures["delays"]["end_to_end_max_us"] > 0
    assert figures["delays"]["end_to_end_p50_us"] < 1_500_000, "end to end counts from the time of delivery"
    assert figures["transactions"]["consumed_per_s"] > 100, "half messages are committed"
    assert figures["idle clients"]["heartbeat_p99_us"] > 0
    assert figures["closed loop"]["messages_per_s"] > 100 and "consumed_per_s" not in figures["closed loop"]
    assert figures["drain"]["drain_s"] > 0 and "end_to_end_p50_us" not in figures["drain"]
    assert figures["random reads"]["read_messages_per_s"] == pytest.approx(
        32 * figures["random reads"]["reads_per_s"], rel=0.01
    )


async def _topics(name_servers: str) -> list[str]:
    async with Admin(name_servers=name_servers) as admin:
        return await admin.topics()


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("topics: 0\n")
    for words, expected in (
        ((str(tmp_path / "s.yaml"),), "topics is 0"),
        (("latency", "-n", "127.0.0.1:1"), "127.0.0.1:1"),
        (("latency", "--set", "flushDiskTyp=X", "--minutes", "0.01"), "flushDiskTyp"),
    ):
        done = preloaded.run([*preloaded.COMMAND, "bench", "run", *words], timeout=120)
        assert done.returncode == 1 and expected in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


def test_the_python_client_as_the_generator_and_a_slave(tmp_path: Path) -> None:
    """SYNC_MASTER: a send without the slave would be an error."""
    replicated = {"slaves": 1, "broker": {"brokerRole": "SYNC_MASTER", **SMALL_FILES}}
    scenario = {**STEADY, "producerRate": 100, "subscriptionsPerTopic": 2, **replicated}
    found = bench(tmp_path, scenario, "--generator", "client", "--runs", "1", "--store", str(tmp_path))
    (run,) = found["points"][0]["runs"]
    assert found["generator"] == "client" and found["target"]["system"] == "rocketmq" and run["errors"] == {}
    assert run["figures"]["consumed_per_s"] == pytest.approx(2 * run["figures"]["messages_per_s"], rel=0.5)
    assert count(run, "send") > 0 and count(run, "end_to_end") > 0
    assert found["target"]["settings"]["brokerRole"] == "SYNC_MASTER"


def test_a_broker_with_tls_and_accounts(tmp_path: Path) -> None:
    """Sends come from both generators; what the native one cannot sign it refuses with the remedy."""
    authority = Authority(tmp_path)
    tls = authority.issue("127.0.0.1").settings() | {"tls.server.mode": "permissive"}
    settings = SMALL_FILES | write_accounts(tmp_path) | write_credentials(tmp_path) | tls
    account = tmp_path / "tools.yml"
    account.write_text(f"accessKey: {OPERATOR}\nsecretKey: {SECRET}\n")
    account.chmod(0o600)
    with running_broker(settings, store=tmp_path / "store") as broker:
        reach = ("-n", broker.namesrv, "--credentials", str(account), "--runs", "1")
        options = (*reach, "--tls", "--tls-ca", str(authority.ca_file))
        found = bench(tmp_path, {**STEADY, "subscriptionsPerTopic": 0}, *options)
        (run,) = found["points"][0]["runs"]
        assert run["errors"] == {} and run["figures"]["messages_per_s"] > 100
        found = bench(tmp_path, {**STEADY, "producerRate": 100}, *options, "--generator", "client")
        (run,) = found["points"][0]["runs"]
        assert run["errors"] == {} and run["figures"]["consumed_per_s"] > 10
        words = [*preloaded.COMMAND, "bench", "run", str(tmp_path / "s.yaml"), *options]
        done = preloaded.run(words, timeout=60)
        assert done.returncode == 1 and "use --generator client" in done.stderr
