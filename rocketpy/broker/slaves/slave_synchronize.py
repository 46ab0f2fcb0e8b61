"""A slave's copy of its master's tables: topics, consumer offsets, progress of delay levels, groups, filters.

The log brings messages only. These tables are fetched from the master's request port, by the codes that slaves of the
reference use; filters by one of rocketpy, because the reference does not copy them. A round is repeated after a second,
or after ten times as long as it took, at most 10 s: small tables follow a change promptly, and large ones cost the
master little. A master of rocketpy sends topics and groups only when they have changed, so it is asked for them five
times a second (table_followers.py). A queue that the log has just brought asks for a round at once, because its topic
is new.

Tables are copied from the master whose log the replicator follows, and only while it does: it has compared both logs.
Another broker, or a master that has lost its store, would otherwise empty the tables of a slave that has the messages.

The log comes over another connection, and may be behind. Progress that presumes messages waits until they are in our
log (log_marks.py). A master that does not say what it presumes is asked for the end of its log after it has answered.

Source: RocketMQ 4.9 `SlaveSynchronize`.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable
from typing import TypeVar

import trio

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import RocketError
from rocketpy.faults import printable
from rocketpy.logs import LogLimit, and_more
from rocketpy.message.names import TRANS_GROUP
from rocketpy.message.numbers import long_or
from rocketpy.remoting.bodies.group import FilterDocument, SubscriptionGroupWrapper
from rocketpy.remoting.bodies.offset import ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper, LogMark
from rocketpy.remoting.bodies.route import KVTable
from rocketpy.remoting.bodies.schema import Body
from rocketpy.remoting.bodies.topic import DELETED_BELOW, DataVersion, TopicConfigSerializeWrapper
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fastjson import loads
from rocketpy.remoting.headers.admin import GetAllConsumerFilterHeader
from rocketpy.transport.steps import Steps

from ..files.log_marks import AwaitedMarks, presumed_by
from ..managers.config_file import ConfigFile
from ..managers.table_followers import TABLE_VERSION, version_text
from ..registration.outer_api import BrokerOuterApi, NameServerClient
from ..services import BrokerServices
from ..transactions.transaction_progress import FIELD

logger = logging.getLogger(__name__)

TIMEOUT_S = 3.0
PAUSE_MIN_S, PAUSE_MAX_S = 1.0, 10.0
PAUSE_FACTOR = 10  # of the time that the last round took
LOOK_S = 0.2
NOT_SUPPORTED_S = 600.0  # until a master that has no filters is asked again: it may have been replaced
FILTERS = "filterDataByTopic"
LOG_END = "commitLogMaxOffset"
AT_ONCE_BYTES_MAX = 4_096  # a larger body is parsed in a thread

_B = TypeVar("_B", bound=Body)


class SlaveSynchronize:
    """Copies the tables of the master. Name servers tell `found` the master; `run` copies until cancelled."""

    def __init__(self, client: NameServerClient, services: BrokerServices, outer_api: BrokerOuterApi) -> None:
        self._client = client
        self._store = services.store
        self._topics = services.topics
        self._groups = services.groups
        self._offsets = services.offsets
        self._schedule = services.schedule
        self._transactions = services.transactions.progress
        self._fast_path = services.fast_path
        self._delete_queues = services.fast_path.delete_queues
        self._deleted: dict[str, int] = {}  # the last deletions of the master that are repeated here
        self._filters = services.filters
        self._consumers = services.consumers
        self._filters_version = ("", "")  # the master that it is of, the version
        self._filters_from_s = -math.inf  # when to ask for them next
        self._settings_lock = trio.Lock()
        self._tells_versions = ""  # the master that sends topics and groups only when they have changed
        self._delays = AwaitedMarks()
        self._delays_of = ("", 0)  # the master, and the stream of its log
        self._limit = LogLimit()
        self.master: str | None = None
        """The master's address for requests; None: not known."""
        self.followed: Callable[[], str] = lambda: ""
        """The address for requests of the master whose log the replicator follows; empty: it follows none."""
        self.stream: Callable[[], int] = lambda: 0
        """The number of the connection by which its log comes."""
        self.on_found: Callable[[str, str], None] = lambda master, ha: None
        """Called with the addresses of requests and of the log."""
        outer_api.on_master = self.found

    def found(self, master: str | None, ha: str | None) -> None:
        """A name server has told the master's addresses; None: it knows no living one."""
        if not master or not ha:
            return  # the last known one may come back
        if master != self.master:
            logger.info("the master of this slave is %s, it sends its log at %s", master, ha)
        self.master = master
        self.on_found(master, ha)

    async def run(self) -> None:
        """Copy until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_settings)
            nursery.start_soon(self._run_rounds)

    async def _run_rounds(self) -> None:
        due_s, queues = 0.0, 0
        while True:
            began_s = trio.current_time()
            if self.followed() and (began_s >= due_s or self._store.queue_count() > queues):
                await self.copy()
                took_s = trio.current_time() - began_s
                due_s = trio.current_time() + min(PAUSE_MAX_S, max(PAUSE_MIN_S, PAUSE_FACTOR * took_s))
                queues = self._store.queue_count()
            await trio.sleep(LOOK_S)

    async def copy(self) -> None:
        """One round, in the order of the reference. What fails is logged, and fetched again in the next one."""
        master = self.followed()
        for copy in (self._copy_topics, self._copy_offsets, self._copy_delays, self._copy_groups, self._copy_filters):
            try:
                await copy(master)
            except _NotFollowed:
                return
            except RocketError as exc:
                told = self._limit.take()
                if told:
                    logger.warning("cannot copy a table of the master %s: %s%s", master, exc, and_more(told))
                return

    async def _run_settings(self) -> None:
        """Copy topics and groups promptly, from a master that sends them only when they have changed."""
        while True:
            master = self.followed()
            if master and master == self._tells_versions:
                with contextlib.suppress(RocketError):  # the next round says so
                    await self._copy_topics(master)
                    await self._copy_groups(master)
            await trio.sleep(LOOK_S)

    async def _copy_topics(self, master: str) -> None:
        async with self._settings_lock:
            await self._copy_topics_alone(master)

    async def _copy_groups(self, master: str) -> None:
        async with self._settings_lock:
            await self._copy_groups_alone(master)

    async def _copy_topics_alone(self, master: str) -> None:
        # What the master has deleted lies below, and so do the messages whose topics it tells. Records that come from
        # here on may be of a topic that it creates meanwhile, also again.
        end = self._store.statistics().published_phy_offset
        code = RequestCode.GET_ALL_TOPIC_CONFIG
        answer, is_same = await self._newer(master, code, self._topics.data_version, self._topics.file)
        if is_same:
            self._delete_messages(answer, end)
            return self._topics.position.know(end)
        theirs = await self._parsed(master, answer, code, TopicConfigSerializeWrapper, "topicConfigTable")
        self._delete_messages(answer, end)
        if theirs.data_version == self._topics.data_version:
            return self._topics.position.know(end)
        await self._topics.follow(
            theirs.topic_config_table,
            theirs.data_version,
            end,
            lambda topic: self._delete_queues(topic, end),
            lambda: self.followed() == master,
        )
        await self._topics.file.save()

    def _delete_messages(self, answer: RemotingCommand, end: int) -> None:
        """Delete what the master has deleted, of topics that may have been created again since the last round: once
        the log, which ends at `end`, has got there."""
        deleted = deleted_below(answer)
        for topic, below in deleted.items():
            if self._deleted.get(topic, 0) < below <= end:
                self._fast_path.delete_messages(topic, below)
                self._deleted[topic] = below
        self._deleted = {topic: self._deleted[topic] for topic in deleted if topic in self._deleted}

    async def _copy_groups_alone(self, master: str) -> None:
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        answer, is_same = await self._newer(master, code, self._groups.data_version, self._groups.file)
        if is_same:
            return
        theirs = await self._parsed(master, answer, code, SubscriptionGroupWrapper, "subscriptionGroupTable")
        if theirs.data_version == self._groups.data_version:
            return
        await self._groups.follow(theirs.subscription_group_table, theirs.data_version)
        await self._groups.file.save()

    async def _copy_offsets(self, master: str) -> None:
        code, log = RequestCode.GET_ALL_CONSUMER_OFFSET, (master, self.stream())
        answer = await self._answer(master, RemotingCommand.request(code))
        theirs = await self._parsed(master, answer, code, ConsumerOffsetSerializeWrapper, "offsetTable")
        # The log may not be as far as the offsets of transactions say: they come with the position that they need.
        if log == (self.followed(), self.stream()):
            self._transactions.follow((answer.ext_fields or {}).get(FIELD, ""), log)
        steps = Steps()
        for key, queues in theirs.offset_table.items():
            topic, at, group = key.partition("@")
            if at and group != TRANS_GROUP:
                self._offsets.follow(group, topic, queues, self._store.max_offset)
            await steps.did(1 + len(queues))

    async def _copy_delays(self, master: str) -> None:
        """Take the progress whose deliveries our own log has. Waiting progress is of one master and one connection:
        a master that comes back may have lost the end of its log."""
        code, log = RequestCode.GET_ALL_DELAY_OFFSET, (master, self.stream())
        if log != self._delays_of:
            self._delays.clear()
            self._delays_of = log
        answer = await self._answer(master, RemotingCommand.request(code))
        theirs = await self._parsed(master, answer, code, DelayOffsetSerializeWrapper, "offsetTable")
        presumed = presumed_by(answer) or LogMark(phy_offset=await self._end_of(master))
        if log == (self.followed(), self.stream()):
            mark = LogMark(epoch=presumed.epoch, offset_table=theirs.offset_table, phy_offset=presumed.phy_offset)
            self._delays.put(mark)
            taken = self._delays.take(self._store.log_end())
            if taken is not None:
                self._schedule.follow(taken)
            else:
                self._schedule.follow_without_progress()

    async def _end_of(self, master: str) -> int:
        """The end of the master's log now: all that it has told before presumes no more."""
        answer = await self._answer(master, RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO))
        runtime = await self._parsed(master, answer, RequestCode.GET_BROKER_RUNTIME_INFO, KVTable, "table")
        end = long_or(runtime.table.get(LOG_END), -1)
        if end < 0:
            raise RocketError(f"GET_BROKER_RUNTIME_INFO: the answer has no {LOG_END}")
        return end

    async def _copy_filters(self, master: str) -> None:
        """SQL92 filters with their state, so that a slave that is promoted has filter bits for groups that are away."""
        if trio.current_time() < self._filters_from_s:
            return
        known = self._filters_version[1] if self._filters_version[0] == master else ""
        request = RemotingCommand.request(
            RequestCode.GET_ALL_CONSUMER_FILTER, GetAllConsumerFilterHeader(version=known)
        )
        answer = await self._answer(master, request)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:  # of the reference, or older
            self._filters_from_s = trio.current_time() + NOT_SUPPORTED_S
            return
        version = GetAllConsumerFilterHeader.of(answer).version
        if version == known:
            return
        theirs = await self._parsed(master, answer, RequestCode.GET_ALL_CONSUMER_FILTER, FilterDocument, FILTERS)
        await self._filters.follow(theirs, lambda group: self._consumers.group(group) is not None)
        await self._filters.file.save()
        self._filters_version = master, version

    async def _fetch(self, master: str, code: RequestCode, kind: type[_B], table: str) -> _B:
        """A body that has the member `table`; without it, nothing can be concluded from what is missing.

        Raises:
            RocketError: there is no such answer, or (`_NotFollowed`) the master is not followed any more.
        """
        answer = await self._answer(master, RemotingCommand.request(code))
        return await self._parsed(master, answer, code, kind, table)

    async def _newer(
        self, master: str, code: RequestCode, version: DataVersion, file: ConfigFile
    ) -> tuple[RemotingCommand, bool]:
        """Ask for a table that we have, and have saved, in `version`. Returns the answer, and if it is the same."""
        await file.save()
        known = "" if file.is_dirty else version_text(version)
        answer = await self._answer(master, RemotingCommand.request(code, ext_fields={TABLE_VERSION: known}))
        theirs = (answer.ext_fields or {}).get(TABLE_VERSION)
        if theirs is not None:
            self._tells_versions = master
        return answer, theirs == known and answer.code == ResponseCode.SUCCESS

    async def _answer(self, master: str, request: RemotingCommand) -> RemotingCommand:
        if not master or self.followed() != master:
            raise _NotFollowed
        return await self._client.invoke(master, request, TIMEOUT_S)

    async def _parsed(self, master: str, answer: RemotingCommand, code: RequestCode, kind: type[_B], table: str) -> _B:
        if answer.code != ResponseCode.SUCCESS:
            remark = printable(answer.remark or "")
            raise RocketError(f"{code.name}: code {answer.code}, {remark}")
        body = answer.body or b""
        if len(body) <= AT_ONCE_BYTES_MAX:
            found = _read(kind, body, table)
        else:
            found = await trio.to_thread.run_sync(_read, kind, body, table)
        if found is None:
            raise RocketError(f"{code.name}: the answer has no {table}")
        if self.followed() != master:
            raise _NotFollowed
        return found


def deleted_below(answer: RemotingCommand) -> dict[str, int]:
    """Topics whose messages the master has deleted lately, and the log offsets below which; empty: it tells none."""
    try:
        found = loads((answer.ext_fields or {}).get(DELETED_BELOW, "{}").encode(), is_strict=True)
    except RocketError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {topic: below for topic, below in found.items() if type(below) is int and below > 0}


def _read(kind: type[_B], body: bytes, table: str) -> _B | None:
    """None: the body is no object that has a `table`."""
    document = loads(body)
    if not isinstance(document, dict) or not isinstance(document.get(table), dict):
        return None
    return kind.from_json(document)


class _NotFollowed(RocketError):
    """The replicator does not follow this master any more: what it answers is not to be copied."""
