"""`rocketpy bench run` on a cluster of official servers, as a user runs it: with `-n` and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

from bench.control import RequestFailed
from tests.interop.brokers import asking
from tests.interop.java_broker import running_java_broker
from tests.support import preloaded
from tests.support.waiting import wait_until

RUNTIME_INFO = 28  # GET_BROKER_RUNTIME_INFO, with which a run begins
TOPIC_LIST = 206  # GET_ALL_TOPIC_LIST_FROM_NAMESERVER
# On a busy machine a send waits longer than these allow by default, and is refused (SYSTEM_BUSY).
PATIENT = {"waitTimeMillsInSendQueue": "60000", "osPageCacheBusyTimeOutMills": "60000"}


def topics_of(namesrv_port: int) -> list[str]:
    with asking(namesrv_port) as namesrv:
        found: list[str] = json.loads(namesrv.check(TOPIC_LIST, {}).body)["topicList"]
        return found


def has_counted(port: int) -> bool:
    """Return True if the broker tells its figures: before its first count it answers with an exception of Java."""
    with asking(port) as broker:
        try:
            broker.check(RUNTIME_INFO, {})
        except RequestFailed:
            return False
        return True


def test_a_shipped_scenario_on_a_java_broker(tmp_path: Path) -> None:
    """The load arrives without an error, the result names the Java broker, the topics of the run are deleted."""
    out = tmp_path / "out.json"
    with running_java_broker(PATIENT) as broker:
        wait_until(lambda: has_counted(broker.port), "the first count of the broker")
        words = [*preloaded.COMMAND, "bench", "run", "throughput", "--quick", "-n", broker.namesrv, "-o", str(out)]
        done = preloaded.run(words, timeout=180)
        assert done.returncode == 0, f"{done.stderr}\n{broker.text()}"
        left = [topic for topic in topics_of(broker.namesrv_port) if topic.startswith("RocketpyBench")]
    found = json.loads(out.read_text())
    (point,) = found["points"]
    (run,) = point["runs"]
    assert run["errors"] == {} and run["figures"]["messages_per_s"] > 0 and run["figures"]["send_p99_us"] > 0
    assert (found["target"]["version"], found["target"]["is_own"]) == ("V4_9_7", False)
    assert left == []
