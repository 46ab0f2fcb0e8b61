"""Clients in pods of the namespace default, as the page tells them to find the name servers."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from tests.support.waiting import wait_until

from .cluster import Cluster

NAME_SERVERS = "namesrv-0.namesrv.rocketpy:9876;namesrv-1.namesrv.rocketpy:9876"
END_S = 120.0
# Sends numbers until it is told to stop, then prints which of them were acknowledged, by which broker, and what failed.
SENDER = """
import json, os, sys, time
from rocketpy.client import Message, ProducerOptions
from rocketpy.client.sync import Producer
from rocketpy.errors import RocketError

acknowledged, failed, longest_s, number = {}, {}, 0.0, 0
with Producer("senders", ProducerOptions(poll_name_server_interval=1)) as producer:
    while not os.path.exists("/tmp/stop"):
        number += 1
        begun_s = time.monotonic()
        try:
            result = producer.send(Message(sys.argv[1], b"%d" % number))
        except RocketError as exc:
            failed[number] = f"{type(exc).__name__}: {exc}"
        else:
            if result.status.name == "SEND_OK":
                acknowledged[number] = result.queue.broker_name
            else:
                failed[number] = result.status.name
        longest_s = max(longest_s, time.monotonic() - begun_s)
        time.sleep(0.02)
print(json.dumps({"acknowledged": acknowledged, "failed": failed, "longest_s": longest_s}))
"""
# Prints all numbers of a topic, at most once each.
READER = """
import json, sys
from rocketpy.client import START_FIRST, PullOptions
from rocketpy.client.sync import PullConsumer

found = set()
with PullConsumer(sys.argv[2], PullOptions(start=START_FIRST)) as consumer:
    consumer.subscribe(sys.argv[1])
    while messages := consumer.poll(timeout=15):
        found.update(int(message.body) for message in messages)
print(json.dumps(sorted(found)))
"""


@attrs.define(eq=False)
class Sending:
    """What a sender's pod has printed at its end."""

    acknowledged: dict[int, str] = attrs.field(init=False, factory=dict)  # the broker, by the number sent
    failed: dict[int, str] = attrs.field(init=False, factory=dict)
    longest_s: float = attrs.field(init=False, default=0.0)

    def __str__(self) -> str:
        sample = list(self.failed.items())[:3]
        return (
            f"{len(self.acknowledged)} acknowledged, {len(self.failed)} failed {sample}, longest {self.longest_s:.2f} s"
        )


@contextlib.contextmanager
def sending(cluster: Cluster, topic: str, variables: Mapping[str, str] | None = None) -> Iterator[Sending]:
    """Send to a topic while the block runs; then fill in what was acknowledged."""
    made = Sending()
    with pod(cluster, SENDER, topic, variables=variables) as name:
        wait_until(lambda: phase(cluster, name) == "Running", f"the pod {name}", END_S, pause_s=0.5)
        yield made
        cluster.kubectl("exec", name, "--", "python", "-c", "open('/tmp/stop', 'w')")
        printed = output(cluster, name)
    made.acknowledged = {int(number): broker for number, broker in printed["acknowledged"].items()}
    made.failed = {int(number): text for number, text in printed["failed"].items()}
    made.longest_s = printed["longest_s"]


def read_all(cluster: Cluster, topic: str, variables: Mapping[str, str] | None = None) -> set[int]:
    """Return the numbers that a new group gets from the topic."""
    group = f"readers-{uuid.uuid4().hex[:8]}"
    with pod(cluster, READER, topic, group, variables=variables) as name:
        return set(output(cluster, name))


@contextlib.contextmanager
def pod(cluster: Cluster, program: str, *arguments: str, variables: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run a program of Python in a pod; yields its name."""
    name = f"client-{uuid.uuid4().hex[:8]}"
    given = {"NAMESRV_ADDR": NAME_SERVERS, **(variables or {})}
    words = ["run", name, f"--image={cluster.image}", "--restart=Never"]
    words += [f"--env={key}={value}" for key, value in given.items()]
    cluster.kubectl(*words, "--command", "--", "python", "-c", program, *arguments)
    try:
        yield name
    finally:
        cluster.kubectl("delete", "pod", name, "--now")


def phase(cluster: Cluster, name: str) -> str:
    found = json.loads(cluster.kubectl("get", "pod", name, "-o", "json"))["status"]["phase"]
    assert found != "Failed", cluster.kubectl("logs", name)
    return str(found)


def output(cluster: Cluster, name: str) -> Any:
    """Return what the program of a pod has printed at its end."""
    wait_until(lambda: phase(cluster, name) == "Succeeded", f"the end of {name}", END_S, pause_s=0.5)
    return json.loads(cluster.kubectl("logs", name).splitlines()[-1])
