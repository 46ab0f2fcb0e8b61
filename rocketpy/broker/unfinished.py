"""Completes the work of a manager or master that died: restores topics that topics.json lacks, and ends deletions of
topics."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from rocketpy.errors import RocketError

from .services import BrokerServices

logger = logging.getLogger(__name__)


def adopt_queues(services: BrokerServices) -> None:
    """Restore topics whose queues hold messages but which topics.json does not have.

    A topic is announced a moment before topics.json is saved. If the manager dies in between, messages that were
    acknowledged must stay visible.
    """
    adopt(services, services.store.used_topics())


def adopt(services: BrokerServices, used_topics: Mapping[str, int]) -> None:
    """Restore the topics among these that the table lacks; each with its number of used queues."""
    topics = services.topics
    largest = topics.largest_template()
    for topic, used in used_topics.items():
        if topics.select(topic) is not None:
            continue
        try:
            count = topics.adopt(topic, used, largest).read_queue_nums
        except RocketError as exc:  # the other topics are served
            logger.error("the log names topic %s, which topics.json lacks, and it is not restored: %s", topic, exc)
            continue
        logger.warning("the log names topic %s, which topics.json lacks: restored it with %d queues", topic, count)


def finish_deletions(services: BrokerServices) -> None:
    """Complete deletions of topics.

    On a slave the log may have brought messages of a topic of the same name since then: they stay.
    """
    for topic, has_messages in services.store.deleted_topics().items():
        if services.topics.select(topic) is not None:
            continue
        if has_messages:
            below = services.store.deletion_bound(topic) if services.settings.is_slave else None
            services.fast_path.delete_queues(topic, below)
        else:
            services.fast_path.topic_removed(topic)
