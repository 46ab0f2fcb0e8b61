"""Switches off consumer groups that read far behind the end of the log: from the disk, to the harm of all others.

Only with disableConsumeIfConsumerReadSlowly. A group that is off stays so until somebody switches it on again
(`mqadmin updateSubGroup -c CLUSTER -g GROUP -s true`).

Source: RocketMQ 4.9 `BrokerController#protectBroker`, `SubscriptionGroupManager#disableConsume`.
"""

from __future__ import annotations

import logging
from collections.abc import Generator

import attrs

from ..current_settings import CurrentSettings
from ..managers.broker_stats import BrokerStatsManager
from ..managers.evolve import evolved
from ..managers.subscription_group import SubscriptionGroupManager

logger = logging.getLogger(__name__)

INTERVAL_S = 180.0  # as in the reference: three minutes to catch up after an operator has switched it on again
ROWS_PER_STEP = 500


@attrs.frozen(eq=False)
class SlowReaders:
    """Call `switch_off_slow_groups` each INTERVAL_S."""

    settings: CurrentSettings
    groups: SubscriptionGroupManager
    stats: BrokerStatsManager

    def switch_off_slow_groups(self) -> Generator[None, None, None]:
        """Switch off each group whose last message lay too far behind in one of its queues. Work in steps."""
        config = self.settings.broker
        if not config.disable_consume_if_consumer_read_slowly:
            return
        for number, (topic, name, behind) in enumerate(self.stats.fall_sizes(), 1):
            group = self.groups.select(name)
            if behind > config.consumer_fallbehind_threshold and group is not None and group.consume_enable:
                self.groups.update(evolved(group, consume_enable=False))
                logger.warning(
                    "switched off consumer group %s: in topic %s it reads %d bytes behind the end of the log, more "
                    "than consumerFallbehindThreshold (%d); `mqadmin updateSubGroup -c %s -g %s -s true` switches it "
                    "on again",
                    name,
                    topic,
                    behind,
                    config.consumer_fallbehind_threshold,
                    config.broker_cluster_name,
                    name,
                )
            if number % ROWS_PER_STEP == 0:
                yield
