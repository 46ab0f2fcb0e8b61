"""Poller: asks brokers and name servers on a schedule, which is the same for one browser and for many.

    each BROKERS_S   name servers for the brokers; each broker for its figures and its part in replication
    each NAMES_S     name servers for all topics; masters for their groups
    in turn          one group after the other for its offsets

The turn of groups costs a broker the most, so it is paced by the time that answers take: after each, the poller rests
REST times as long. Groups that somebody looks at, or that an alarm names, come each WATCHED_S, before all others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

from rocketpy import aio
from rocketpy.admin.admin import Admin
from rocketpy.admin.core import read_answer
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import BrokerError, RequestTimeout, RocketError
from rocketpy.faults import Faults, printable
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.bodies.offset import ConsumeStats, OffsetWrapper
from rocketpy.remoting.fastjson import loads
from rocketpy.remoting.headers.admin import GetConsumeStatsRequestHeader, QueryConsumeTimeSpanRequestHeader

from .cluster import BrokerState, ClusterState, GroupState
from .history import VALUE_MAX

BROKERS_S = 5.0
NAMES_S = 30.0
WATCHED_S = 10.0
ROUND_MIN_S = 60.0  # between two samples of a group that nobody looks at
REST = 50  # seconds without a question for each second that the last answer took
REST_MIN_S, REST_MAX_S = 0.02, 10.0
SAMPLE_S = 10.0  # one group, on all its brokers
AGED_TOPICS_MAX = 16  # of one group, that are asked for the age of their backlog
AT_ONCE = 16  # brokers that are asked at the same time


class WantedGroups(Protocol):
    """The groups that alarms look at."""

    @property
    def named_groups(self) -> frozenset[str]:
        """Groups that come often."""

    def wants_age(self, group: str) -> bool:
        """Return True if the age of its backlog is asked for."""


class Poller:
    """Keeps `state` up to date until cancelled.

    Args:
        wanted: the groups that alarms look at.
    """

    def __init__(self, admin: Admin, state: ClusterState, wanted: WantedGroups) -> None:
        self._admin = admin
        self._state = state
        self._wanted = wanted
        self._turn: deque[str] = deque()  # groups that this round has not come to; at most GROUPS_MAX
        self._turn_ms = 0.0  # when the round began
        self._faults = Faults(name="console")
        self._places = aio.Semaphore(AT_ONCE)
        self.has_looked = aio.Event()  # the first round over brokers is done

    async def run(self) -> None:
        async with aio.open_nursery() as nursery:
            nursery.start_soon(self._every, BROKERS_S, "polling brokers", self._brokers)
            nursery.start_soon(self._every, NAMES_S, "polling names", self._names)
            nursery.start_soon(self._every, 0.0, "polling groups", self._next_group)

    async def _every(self, interval_s: float, place: str, job: Callable[[], Awaitable[object]]) -> None:
        """Do a job again and again: one that fails is done again after the interval."""
        while True:
            begun_s = aio.now_s()
            try:
                await job()
            except Exception as fault:
                if aio.is_stray_cancellation(fault):
                    raise
                self._faults.report(place, fault)
                await aio.sleep(1)
            await aio.sleep_until(begun_s + interval_s)

    @property
    def _now_ms(self) -> int:
        return self._admin.instance.now_ms()

    # --- brokers ------------------------------------------------------------------------------------------------------

    async def _brokers(self) -> None:
        state = self._state
        try:
            state.list_brokers(await self._admin.cluster_info(), self._now_ms)
        except RocketError as error:
            state.error = printable(str(error))
        async with aio.open_nursery() as nursery:
            for broker in state.sorted_brokers():
                nursery.start_soon(self._broker, broker)
        self.has_looked.set()

    async def _broker(self, broker: BrokerState) -> None:
        async with self._places:
            begun_s = aio.now_s()
            try:
                figures = await self._admin.runtime_info(broker.address)
                took_ms, now_ms = (aio.now_s() - begun_s) * 1000, self._now_ms
                ha = await self._admin.ha_status(broker.address)
            except RocketError as error:
                is_answer = isinstance(error, BrokerError)
                broker.failed(printable(str(error)), self._now_ms if is_answer else None)
            else:
                broker.answered(now_ms, took_ms, figures, ha)

    # --- names --------------------------------------------------------------------------------------------------------

    async def _names(self) -> None:
        await self.has_looked.wait()
        state, groups = self._state, set(self._state.groups)
        try:
            topics = await self._admin.topics()
        except RocketError as error:
            state.names_error = printable(str(error))
            if not groups:
                await aio.sleep(BROKERS_S)
            return
        found: set[str] = set()
        failures = []
        for broker in state.masters():
            try:
                found |= (await self._admin.group_configs(broker.address)).keys()
            except RocketError as error:  # it may be a stranger's, or not know the account of the console
                failures.append(f"{broker.name}: {printable(str(error))}")
        if failures or state.without_master():
            found |= groups  # those of a broker that does not tell them are not gone
        state.name_topics_and_groups(topics, found)
        state.names_error = "; ".join(failures)

    # --- groups -------------------------------------------------------------------------------------------------------

    def _next_name(self) -> str | None:
        """Return the group to sample now: a watched or named one that is due, or the next one in turn."""
        now_ms, groups = self._now_ms, self._state.groups
        often = {group.name for group in self._state.watched(now_ms)} | (self._wanted.named_groups & groups.keys())
        due = [(groups[name].asked_ms, name) for name in often if _is_over(groups[name].asked_ms, WATCHED_S, now_ms)]
        if due:
            return min(due)[1]
        if not self._turn and _is_over(self._turn_ms, ROUND_MIN_S, now_ms):
            self._turn, self._turn_ms = deque(sorted(groups)), now_ms
        while self._turn:
            name = self._turn.popleft()
            if name in groups and name not in often:
                return name
        return None

    async def _next_group(self) -> None:
        """Sample a group, then rest."""
        name = self._next_name()
        if name is None:
            await aio.sleep(0.5)
            return
        begun_s = aio.now_s()
        await self.sample(self._state.groups[name])
        await aio.sleep(min(max((aio.now_s() - begun_s) * REST, REST_MIN_S), REST_MAX_S))

    async def sample(self, group: GroupState) -> None:
        """Ask all masters for the offsets of a group. Its `error` says what failed."""
        now_ms = group.asked_ms = self._now_ms
        is_watched = any(group is one for one in self._state.watched(now_ms))
        failures = [f"{name}: no master answers" for name in self._masterless_of(group)]
        stats = ConsumeStats()
        has_queues: dict[str, bool] = {}
        age_ms: float | None = None
        with aio.move_on_after(SAMPLE_S) as scope:
            for broker in self._state.masters():
                try:
                    header = GetConsumeStatsRequestHeader(consumer_group=group.name)
                    answer = await self._admin.ask(broker.address, RequestCode.GET_CONSUME_STATS, header)
                    found = await read_answer(ConsumeStats, answer.body)
                    has_queues[broker.name] = bool(found.offset_table)
                    stats.offset_table.update(found.offset_table)
                    stats.consume_tps += found.consume_tps
                    if is_watched or self._wanted.wants_age(group.name):
                        age_ms = max(age_ms or 0, await self._age_ms(broker, group.name, found.offset_table))
                except RocketError as error:
                    failures.append(f"{broker.name}: {printable(str(error))}")
        if scope.cancelled_caught:
            failures.append(str(RequestTimeout(f"not within {SAMPLE_S:g} s")))
        known = {broker.name for broker in self._state.brokers.values()}
        group.has_queues = {name: has for name, has in {**group.has_queues, **has_queues}.items() if name in known}
        if failures and not stats.offset_table:
            group.error = "; ".join(failures)
            return
        group.sampled(now_ms, stats.offset_table, stats.consume_tps, age_ms, with_queues=is_watched)
        group.error = "; ".join(failures)

    def _masterless_of(self, group: GroupState) -> list[str]:
        """List the names of brokers without a master that may hold queues of a group.

        The last answer of a broker decides. One that has not answered yet counts while the name servers know it: else
        it was perhaps removed.
        """
        listed = {broker.name for broker in self._state.brokers.values() if broker.is_listed}
        return [name for _, name in self._state.without_master() if group.has_queues.get(name, name in listed)]

    async def _age_ms(self, broker: BrokerState, group: str, offsets: dict[MessageQueue, OffsetWrapper]) -> float:
        """Return for how long the oldest message on this broker has waited for the group; 0: none waits."""
        behind = sorted({queue.topic for queue, offset in offsets.items() if offset.lag})
        ages_ms = [0.0]
        for topic in behind[:AGED_TOPICS_MAX]:
            header = QueryConsumeTimeSpanRequestHeader(topic=topic, group=group)
            try:
                answer = await self._admin.ask(broker.address, RequestCode.QUERY_CONSUME_TIME_SPAN, header)
            except BrokerError as error:
                if error.code == ResponseCode.TOPIC_NOT_EXIST:
                    continue
                raise
            ages_ms += delays_ms(answer.body)
        return max(ages_ms)


def _is_over(begun_ms: float, seconds: float, now_ms: float) -> bool:
    """Return True if the time is over, or if the clock was set back meanwhile."""
    return not 0 <= now_ms - begun_ms < seconds * 1000


def delays_ms(body: bytes | None) -> list[float]:
    """Return `delayTime` of each queue in the answer to QUERY_CONSUME_TIME_SPAN."""
    answer = loads(body or b"{}")
    spans = answer.get("consumeTimeSpanSet") if isinstance(answer, dict) else None
    found = [span.get("delayTime") for span in spans if isinstance(span, dict)] if isinstance(spans, list) else []
    return [float(delay) for delay in found if isinstance(delay, int | float) and abs(delay) <= VALUE_MAX]
