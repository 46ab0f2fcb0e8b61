"""A store with many topics and groups: its tables are written before the broker starts, which takes a second."""

from __future__ import annotations

import json
from pathlib import Path

from rocketpy.message.names import retry_topic

QUEUES = 4


def topic_name(number: int) -> str:
    return f"orders-{number:05}"


def group_name(number: int) -> str:
    return f"billing-{number:04}"


def write_tables(store: Path, topics: int, groups: int, *, consumed: int = 1) -> None:
    """Write topics of QUEUES queues, and groups that have consumed `consumed` messages of each queue of one topic."""
    names = [topic_name(number) for number in range(topics)]
    queues = dict.fromkeys(names, QUEUES) | {retry_topic(group_name(number)): 1 for number in range(groups)}
    table = {
        name: {
            "topicName": name,
            "readQueueNums": count,
            "writeQueueNums": count,
            "perm": 6,
            "order": False,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
        }
        for name, count in queues.items()
    }
    version = {"counter": 1, "timestamp": 1}
    offsets = {
        f"{names[number % topics]}@{group_name(number)}": dict.fromkeys(map(str, range(QUEUES)), consumed)
        for number in range(groups)
    }
    group_table = {group_name(number): {"groupName": group_name(number)} for number in range(groups)}
    config = store / "config"
    config.mkdir(parents=True)
    for file, content in (
        ("topics.json", {"dataVersion": version, "topicConfigTable": table}),
        ("subscriptionGroup.json", {"dataVersion": version, "subscriptionGroupTable": group_table}),
        ("consumerOffset.json", {"offsetTable": offsets}),
    ):
        (config / file).write_text(json.dumps(content))
