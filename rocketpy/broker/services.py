"""Everything that processors use, in one frozen value: one attribute per owner of a table or service."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

import attrs

from rocketpy.codes import RequestCode
from rocketpy.networks import parse_networks
from rocketpy.remoting.bodies.topic import DataVersion
from rocketpy.remoting.fast_path import FastPath
from rocketpy.remoting.limits import PoolLoad

from .clock import Clock
from .current_settings import CurrentSettings
from .delays.schedule import ScheduleService
from .managers.broker_stats import BrokerHealth, BrokerStatsManager
from .managers.consumer import ConsumerManager
from .managers.consumer_filter import ConsumerFilterManager
from .managers.consumer_offset import ConsumerOffsetManager
from .managers.producer import ProducerManager
from .managers.rebalance_lock import RebalanceLockManager
from .managers.repeated_heartbeats import RepeatedHeartbeats
from .managers.subscription_group import SubscriptionGroupManager
from .managers.table_followers import TableFollowers
from .managers.topic_config import TopicConfigManager
from .store_api import Store
from .transactions.transactions import TransactionService

if TYPE_CHECKING:
    from .access import AccessControl, AccountsKeeper


class Registrar(Protocol):
    """The way to the name servers."""

    def topics_changed(self) -> None:
        """Register soon; returns at once."""

    async def register(self) -> None:
        """Register with all name servers now. A server that does not answer in time is tried again in the next
        round."""

    async def wait_first_round(self) -> None:
        """Wait for the end of the first registration, for a bounded time."""


@attrs.frozen
class BrokerServices:
    """The owners of tables, and the services of the broker."""

    settings: CurrentSettings
    clock: Clock
    choose: random.Random
    store: Store
    fast_path: FastPath
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    consumers: ConsumerManager
    filters: ConsumerFilterManager
    producers: ProducerManager
    locks: RebalanceLockManager
    stats: BrokerStatsManager
    schedule: ScheduleService
    transactions: TransactionService
    registrar: Registrar
    pool_loads: Callable[[], Mapping[str, PoolLoad]]  # by name of the pool (reactor/pools.py)
    health: Callable[[], BrokerHealth] = BrokerHealth
    access: AccessControl | None = None  # None: every request is allowed
    accounts: AccountsKeeper | None = None  # with access control
    followers: TableFollowers = attrs.field(init=False)
    repeated_heartbeats: RepeatedHeartbeats = attrs.field(init=False)

    @followers.default
    def _followers(self) -> TableFollowers:
        versions: dict[int, Callable[[], DataVersion]] = {
            RequestCode.GET_ALL_TOPIC_CONFIG: lambda: self.topics.data_version,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: lambda: self.groups.data_version,
        }
        return TableFollowers(versions, parse_networks(self.settings.store.ha_addresses))

    @repeated_heartbeats.default
    def _repeated_heartbeats(self) -> RepeatedHeartbeats:
        return RepeatedHeartbeats(self.consumers, self.producers, self.groups, self.topics, self.clock)

    def tell_broker_changed(self) -> None:
        """Send the settings that can change at run time to the send and pull workers."""
        self.fast_path.broker_changed(
            permission=self.settings.broker.broker_permission,
            max_message_size=self.settings.store.max_message_size,
            reject_transactions=self.settings.broker.reject_transaction_message,
        )
