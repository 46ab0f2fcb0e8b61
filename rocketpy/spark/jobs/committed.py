"""The committed offsets of consumer groups, asked of brokers or read from the files of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs

from rocketpy.errors import ConfigError, ProtocolError, StoreError
from rocketpy.remoting.fastjson import loads

from ..cluster import Cluster
from .inputs import Input

OFFSET_FILE = Path("config/consumerOffset.json")


@attrs.frozen
class Committed:
    """The position of a group in a queue; `broker` is None where messages do not name theirs."""

    group: str
    topic: str
    broker: str | None
    queue_id: int
    position: int


def committed(source: Input, groups: tuple[str, ...]) -> list[Committed]:
    """The positions of groups in the topics of an input.

    Args:
        groups: brokers must be told which; a store has those of all, and these are chosen.
    Raises:
        ConfigError: a group has committed nothing there. StoreError: the file cannot be read.
    """
    if source.name_server is not None:
        found = _of_brokers(source.cluster, source.topics, groups)
    elif source.store is not None:
        found = [one for one in _of_store(source.store / OFFSET_FILE) if not groups or one.group in groups]
    else:
        found = []
    if missing := set(groups) - {one.group for one in found}:
        raise ConfigError(f"group {min(missing)} has committed no offset in what is read")
    return found


def _of_brokers(cluster: Cluster, topics: tuple[str, ...], groups: tuple[str, ...]) -> list[Committed]:
    queues = cluster.queues(topics) if groups else set()
    return [
        Committed(group, queue.topic, queue.broker_name, queue.queue_id, position)
        for group in groups
        for queue, position in cluster.committed(group, queues).items()
        if position is not None
    ]


def _of_store(path: Path) -> list[Committed]:
    """`{"offsetTable": {"topic@group": {"0": 17}}}`; Java leaves out the quotes of queue ids."""
    try:
        found: Any = loads(path.read_bytes())
        return [
            Committed(group, topic, None, int(queue_id), int(position))
            for name, positions in found["offsetTable"].items()
            for topic, _, group in [name.rpartition("@")]
            for queue_id, position in positions.items()
        ]
    except FileNotFoundError:
        return []
    except (ProtocolError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
