"""The broker as a whole: configuration (25, 26), figures (28, 315), cleaning (306, 316, 329), access control (50-53).

Source: RocketMQ 4.9 `AdminBrokerProcessor`.
"""

from __future__ import annotations

import logging
from typing import Any

import attrs
import trio

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.config import MessageStoreConfig, properties, update_broker
from rocketpy.config.change_file import change_file
from rocketpy.config.setting import declared_settings
from rocketpy.errors import RequestRefused
from rocketpy.remoting import fastjson
from rocketpy.remoting.abc import Channel, Detached
from rocketpy.remoting.bodies.topic import DataVersion
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.broker import GetBrokerConfigResponseHeader, ViewBrokerStatsDataRequestHeader
from rocketpy.transport.steps import Steps

from ..managers.stats_item import StatsSnapshot
from ..runtime_info import runtime_info
from ..services import BrokerServices
from .deletion_wait import answer_after, clean_expired
from .table import TableProcessor

logger = logging.getLogger(__name__)
STORE_KEYS = frozenset(declared.setting.key for declared in declared_settings(MessageStoreConfig))


class AdminBrokerProcessor(TableProcessor):
    """The configuration and the state of the broker, for operators."""

    def __init__(self, services: BrokerServices) -> None:
        super().__init__(
            {
                RequestCode.UPDATE_BROKER_CONFIG: self._update_config,
                RequestCode.GET_BROKER_CONFIG: self._config,
                RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime_info,
                RequestCode.VIEW_BROKER_STATS_DATA: self._stats,
                RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self._clean_expired_queues,
                RequestCode.CLEAN_UNUSED_TOPIC: self._clean_unused_topics,
                RequestCode.DELETE_EXPIRED_COMMITLOG: self._delete_expired_log,
                RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: self._no_acl,
                RequestCode.DELETE_ACL_CONFIG: self._no_acl,
                RequestCode.GET_BROKER_CLUSTER_ACL_INFO: self._no_acl,
                RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self._no_acl,
            }
        )
        self._services = services
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
        logger.info(
            "configuration changed: %s take effect now, %s after a restart, %s never",
            update.at_once,
            update.at_restart,
            update.without_effect,
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

    async def _clean_expired_queues(self, request: RemotingCommand, channel: Channel) -> Detached:
        return clean_expired(self._services.fast_path)

    async def _delete_expired_log(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        """Request deletion of log files older than fileReservedTime. Answered at once, because there may be many
        files."""
        self._services.store.request_delete_expired()
        return RemotingCommand.response()

    async def _clean_unused_topics(self, request: RemotingCommand, channel: Channel) -> Detached:
        """Delete the queues of topics that no longer have a configuration."""
        services, steps = self._services, Steps()
        queues = await trio.to_thread.run_sync(services.store.queue_states)
        found, deletions = set(), []
        for queue in queues:
            found.add(queue.topic)
            await steps.did()
        for topic in found:
            await steps.did()
            if services.topics.select(topic) is None and not services.topics.is_system(topic):
                logger.info("topic %s has queues but no configuration: deleting its queues", topic)
                deletions.append(services.fast_path.delete_queues(topic))
        return answer_after(deletions, services.topics.position.pass_deletion)

    async def _no_acl(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "access control is off on this broker (aclEnable=false)")


def _window(snapshot: StatsSnapshot) -> dict[str, Any]:
    return attrs.asdict(snapshot)
