"""The broker as a whole: configuration (25, 26), figures (28, 315), replication (907, 30001).

Source: RocketMQ 4.9 `AdminBrokerProcessor`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import attrs
import trio

from rocketpy.codes import REPLICATION_VERSION, REPLICATION_VERSION_LOWEST, RequestCode, ResponseCode
from rocketpy.config import MessageStoreConfig, properties, update_broker
from rocketpy.config.setting import declared_settings
from rocketpy.config.update import change_file
from rocketpy.errors import RequestRefused
from rocketpy.remoting import fastjson
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.bodies.broker import HaStatus
from rocketpy.remoting.bodies.topic import DataVersion
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.admin import GetBrokerConfigResponseHeader, ViewBrokerStatsDataRequestHeader

from ..managers.stats_item import StatsSnapshot
from ..runtime_info import runtime_info
from ..services import BrokerServices
from .table import TableProcessor

logger = logging.getLogger(__name__)
STORE_KEYS = frozenset(declared.setting.key for declared in declared_settings(MessageStoreConfig))


class AdminBrokerProcessor(TableProcessor):
    """The configuration and the state of the broker, for operators."""

    def __init__(self, services: BrokerServices, replication_status: Callable[[], HaStatus]) -> None:
        """`replication_status`: the state now; it is memory that is shared with other workers."""
        super().__init__(
            {
                RequestCode.UPDATE_BROKER_CONFIG: self._update_config,
                RequestCode.GET_BROKER_CONFIG: self._config,
                RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime_info,
                RequestCode.VIEW_BROKER_STATS_DATA: self._stats,
                RequestCode.GET_REPLICATION_VERSION: self._replication_version,
                RequestCode.GET_BROKER_HA_STATUS: self._ha_status,
            }
        )
        self._services = services
        self._replication_status = replication_status
        self._updating = trio.Lock()
        self._config_version = DataVersion(timestamp_ms=services.clock.now_ms())

    async def _update_config(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        """Save all changes to the file, and apply the ones that a running broker can take over. One invalid key refuses
        all of them."""
        services = self._services
        try:
            changes = properties.read_changes(request.body)
        except properties.PropertiesError as exc:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(exc)) from exc
        async with self._updating:
            update = update_broker(services.settings.value, changes)
            await trio.to_thread.run_sync(change_file, update.settings.update_path, update.changes)
            services.settings.value = update.settings
        changes = dict(update.changes)
        kinds = (update.at_once, update.at_restart, update.without_effect)
        logger.info(
            "configuration changed; in effect now: %s; at the next start: %s; without effect: %s",
            *(", ".join(keys) or "-" for keys in kinds),
        )
        self._config_version = self._config_version.next(services.clock.now_ms())
        if changes.keys() & {"brokerPermission", "maxMessageSize", "rejectTransactionMessage"}:
            services.tell_broker_changed()
        of_store = {key: changes[key] for key in update.at_once if key in STORE_KEYS}
        if of_store:
            services.fast_path.store_settings_changed(of_store)
        if "brokerPermission" in changes:
            services.topics.next_version()
            services.registrar.topics_changed()
        return RemotingCommand.response()

    async def _config(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        version = fastjson.dump_text(self._config_version)
        body = self._services.settings.value.to_properties().encode()
        return RemotingCommand.response(header=GetBrokerConfigResponseHeader(version=version), body=body)

    async def _runtime_info(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        return RemotingCommand.response(body=fastjson.dumps({"table": runtime_info(self._services)}))

    async def _stats(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = ViewBrokerStatsDataRequestHeader.of(request)
        item = self._services.stats.item(header.stats_name, header.stats_key)
        if item is None:
            remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        body = {"statsDay": _window(item.day), "statsHour": _window(item.hour), "statsMinute": _window(item.minute)}
        return RemotingCommand.response(body=fastjson.dumps(body))

    async def _replication_version(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        # a slave of the last release reads `version` alone, and asks for its own
        lowest, highest = REPLICATION_VERSION_LOWEST, REPLICATION_VERSION
        body = {"version": lowest, "lowest": lowest, "highest": highest}
        return RemotingCommand.response(body=fastjson.dumps(body))

    async def _ha_status(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        return RemotingCommand.response(body=self._replication_status().encode())


def _window(snapshot: StatsSnapshot) -> dict[str, Any]:
    return attrs.asdict(snapshot)
