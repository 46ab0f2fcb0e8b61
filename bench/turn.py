"""One turn: a fresh broker, warmed up, through all scenarios, and away with it.

Between two scenarios the broker is left to finish (consume queues built) and the disk too (sync), so that no run pays
for the one before; and what a broker puts off until after a run is still charged to it as CPU per message.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import attrs

from rocketpy.bench.load import Load, Mode, Progress, Result, Workload
from rocketpy.bench.own_broker import HOST

from .brokers import Broker
from .scenarios import PRELOAD_MESSAGES, QUEUES, Scenario

TOPIC_SEND, TOPIC_PULL, TOPIC_WARM_UP = "bench_send", "bench_pull", "bench_warm_up"
LOADED_BODY_SIZE = 128


@attrs.frozen
class Plan:
    scenarios: Sequence[Scenario]
    seconds: float
    warm_up_s: float  # of the broker, once; each scenario is warmed up for a quarter of its time besides
    loaded_messages: int  # for memory-loaded


@attrs.frozen
class Measurement:
    """The figures of one scenario in one turn, by metric; `errors` by reply code or kind."""

    scenario: str
    target: str
    figures: dict[str, float]
    errors: dict[str, int] = attrs.field(factory=dict)


Watch = Callable[[str], Progress]  # given a label, a place to report progress to


def open_load(broker: Broker, workload: Workload, topic: str, offsets: Sequence[int] = ()) -> Load:
    return Load(workload, host=HOST, port=broker.port, topic=topic, queues=QUEUES, offsets=offsets)


def wait_until_stored(broker: Broker, topic: str, expected: int) -> list[int]:
    """Let dispatch catch up with `expected` messages and the disk with everything; the queues' ends."""
    with broker.control() as control:
        offsets = control.wait_for_offsets(topic, QUEUES, expected)
    os.sync()
    return offsets


def preload(broker: Broker, topic: str, messages: int, body_size: int, watch: Progress) -> list[int]:
    """Send until the topic holds at least `messages`; refused ones are sent again. Returns the queues' ends."""
    with broker.control() as control:
        stored = sum(offsets := control.max_offsets(topic, QUEUES))
    while stored < messages:
        workload = Workload(Mode.SEND, 16, 16, body_size, requests_max=messages - stored)
        with open_load(broker, workload, topic) as load:
            load.run(600, watch)
            acknowledged = load.result(1.0, 0.0).messages
        if not acknowledged:
            raise ConnectionError("the broker acknowledged no message")
        stored = sum(offsets := wait_until_stored(broker, topic, stored + acknowledged))
    return offsets


def figures(result: Result, cpu_us_per_message: float) -> dict[str, float]:
    latency, end_to_end = result.latency_us, result.end_to_end_us
    found = {
        "messages_per_s": result.messages_per_s,
        "messages": result.messages,
        "seconds": result.seconds,
        "p50_us": latency.p50,
        "p90_us": latency.p90,
        "p99_us": latency.p99,
        "p999_us": latency.p999,
        "max_us": latency.max,
        "cpu_us_per_message": round(cpu_us_per_message, 3),
        "driver_cpu_s": result.driver_cpu_s,
    }
    if end_to_end is not None:
        found |= {
            "end_to_end_p50_us": end_to_end.p50,
            "end_to_end_p99_us": end_to_end.p99,
            "end_to_end_p999_us": end_to_end.p999,
            "end_to_end_max_us": end_to_end.max,
        }
    if result.mebibytes_per_s:
        found["pulled_mib_per_s"] = result.mebibytes_per_s
    return found


def run_load(broker: Broker, scenario: Scenario, workload: Workload, plan: Plan, watch: Watch) -> Measurement:
    """Run one scenario on a broker that is up and warm."""
    is_pull = workload.mode is Mode.PULL
    topic = TOPIC_PULL if is_pull else TOPIC_SEND
    if is_pull:
        offsets = preload(broker, topic, PRELOAD_MESSAGES, workload.body_size, watch(f"{scenario.name}: preload"))
    else:
        with broker.control() as control:
            offsets = control.max_offsets(topic, QUEUES)
    bounded = attrs.evolve(workload, requests_max=scenario.requests_max)
    cpu_before_s, stored_before = broker.cpu_s(), sum(offsets)
    with open_load(broker, bounded, topic, offsets) as load:
        result = load.measure(plan.seconds, warm_up_s=plan.seconds / 4, progress=watch(scenario.name))
    if is_pull:  # the warm-up's messages were not counted, but took as much CPU
        handled = result.messages * (1 + plan.seconds / 4 / result.seconds)
    else:
        handled = sum(wait_until_stored(broker, topic, stored_before + result.messages)) - stored_before
    cpu_s = broker.cpu_s() - cpu_before_s
    broker.check_alive()
    return Measurement(
        scenario.name, broker.target, figures(result, cpu_s * 1e6 / max(1, handled)), dict(result.errors)
    )


def run_turn(broker: Broker, plan: Plan, watch: Watch) -> list[Measurement]:
    """Run all scenarios of the plan. A broker that dies ends the turn with BrokerFailed or ConnectionError."""
    found: list[Measurement] = []
    names = {scenario.name for scenario in plan.scenarios}
    if "boot" in names:
        boot = {"boot_s": round(broker.boot_s, 3), "route_s": round(broker.route_s, 3)}
        found.append(Measurement("boot", broker.target, boot))
    if "memory-idle" in names:
        found.append(Measurement("memory-idle", broker.target, {"pss_mib": broker.pss_mib()}))
    for topic in (TOPIC_SEND, TOPIC_PULL, TOPIC_WARM_UP):
        broker.create_topic(topic, QUEUES)
    warm_up(broker, plan.warm_up_s, watch)
    for scenario in plan.scenarios:
        if scenario.workload is not None:
            found.append(run_load(broker, scenario, scenario.workload, plan, watch))
    if "memory-loaded" in names:
        watched = watch("memory-loaded")
        offsets = preload(broker, TOPIC_WARM_UP, plan.loaded_messages, LOADED_BODY_SIZE, watched)
        loaded = {"pss_mib": broker.pss_mib(), "messages": float(sum(offsets))}
        found.append(Measurement("memory-loaded", broker.target, loaded))
    return found


def warm_up(broker: Broker, seconds: float, watch: Watch) -> None:
    """Sends and pulls in the shapes that follow, so that a just-in-time compiler has seen them all."""
    if seconds <= 0:
        return
    sent = 0
    for connections, in_flight, batch in ((16, 16, 1), (4, 4, 16), (1, 1, 1)):
        workload = Workload(Mode.SEND, connections, in_flight, LOADED_BODY_SIZE, batch=batch)
        with open_load(broker, workload, TOPIC_WARM_UP) as load:
            sent += load.measure(seconds / 4, progress=watch("warm-up: send")).messages
    offsets = wait_until_stored(broker, TOPIC_WARM_UP, sent)
    with open_load(broker, Workload(Mode.PULL, 4, 4), TOPIC_WARM_UP, offsets) as load:
        load.measure(seconds / 4, progress=watch("warm-up: pull"))
