"""Sends that need a decision: unknown topics, retry topics, delay levels, the first half message, and refusals.

A send is validated without waiting. It is refused, resent (to the fast path, marked RESOLVED), or put into another
topic: schedule topic, half topic, dead letters. If it creates a topic, it waits until topics.json is saved, and later
sends of its connection wait behind it.

Source: RocketMQ 4.9 `AbstractSendMessageProcessor#msgCheck`, `SendMessageProcessor`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import attrs
import trio

from rocketpy.codes import MQVersion, ResponseCode
from rocketpy.errors import RocketError
from rocketpy.faults import Faults
from rocketpy.message import names
from rocketpy.message.properties import (
    CLUSTER,
    DELAY,
    PROPERTIES_SIZE_MAX,
    TRAN_MSG,
    without_property,
)
from rocketpy.message.sys_flag import (
    MULTI_TAGS,
    TOPIC_SYS_FLAG_UNIT,
    TOPIC_SYS_FLAG_UNIT_SUB,
    TRANSACTION_MASK,
    PermName,
)
from rocketpy.remoting.answers import too_old
from rocketpy.remoting.bodies.topic import TopicConfig, TopicFilterType
from rocketpy.remoting.fast_path import MessageToPut, PutResult, PutUnderWay, SendRequest

from .. import replies
from ..delays.levels import delay_level_of
from ..delays.timer_changes import TimerChange, TimerChanges, timer_change_of
from ..property_edits import text_property, with_values, without_timer
from ..replies import push_send_reply, push_stored_reply
from ..services import BrokerServices
from .passed_on_sends import PassedOnSends
from .pending_sends import PendingSend, PendingSends


@attrs.frozen
class Refusal:
    """The code and the remark of the reply to a send that is refused."""

    code: int
    remark: str


@attrs.frozen
class Resend:
    """Hand the send back to the send worker with this queue and these flags."""

    queue_id: int
    sys_flag: int


@attrs.frozen
class Put:
    """Store `message`; the response to the sender names `queue_id`."""

    message: MessageToPut
    queue_id: int


@attrs.frozen
class Change:
    """Cancel or move timers; the response names `queue_id`."""

    change: TimerChange
    queue_id: int


Verdict = Refusal | Resend | Put | Change


@attrs.frozen
class Target:
    """A queue of the message's topic in which it may be stored."""

    queue_id: int
    sys_flag: int


class SlowSend:
    """Admits sends that the send worker diverts to the manager, by connection in their order. One per broker."""

    def __init__(self, services: BrokerServices, faults: Faults, count_refused: Callable[[int], None]) -> None:
        """Take what admission needs.

        Args:
            faults: counts failures of single sends.
            count_refused: called with the response code of each refused send. The send worker counts its own, and those
                of messages that it cannot put elsewhere.
        """
        self._count_refused = count_refused
        self._settings, self._clock, self._choose = services.settings, services.clock, services.choose
        self._topics, self._groups = services.topics, services.groups
        self._fast_path = fast_path = services.fast_path
        self._delay_levels = services.schedule.levels
        self._timer_changes = TimerChanges(services.settings, services.store, fast_path)
        self._waiting: dict[int, deque[PendingSend]] = {}  # connection -> its sends behind one that waits for the disk
        self.sends = PendingSends(fast_path.complete, self.refuse, faults)
        self._nursery: trio.Nursery | None = None
        self.passed_on: PassedOnSends | None = None  # on a slave with automatic failover, set before the first `submit`

    def open(self, nursery: trio.Nursery) -> None:
        """Set the nursery for tasks that wait for a disk or a put. Called before the first `submit`."""
        self._nursery = nursery

    def finish(self) -> bool:
        """Before the manager leaves: end what waits for the master. Returns: whether every send is answered."""
        if self.passed_on is not None:
            self.passed_on.finish()
        return not len(self.sends)

    def submit(self, request: SendRequest) -> None:
        """Validate the send, now or behind earlier sends of its connection that wait."""
        send = self.sends.add(request)
        if send is None:
            return
        if self.passed_on is not None:
            return self.passed_on.take(send, self._tasks)
        connection = request.channel.connection
        queue = self._waiting.get(connection)
        if queue is not None:
            queue.append(send)
            return
        with self.sends.ending(send):
            verdict = self.admit(request)
            if not self._topics.file.is_dirty:
                self._act(send, verdict)
                return
            self._waiting[connection] = deque()
            self._tasks.start_soon(self._drain, connection, send, verdict)
            send.goes_on = True

    async def _drain(self, connection: int, first: PendingSend, verdict: Verdict) -> None:
        """Complete a send when its topic is saved, and then the sends behind it."""
        queue = self._waiting[connection]
        try:
            await self._act_saved(first, verdict)
            while queue:
                send = queue.popleft()
                await self._act_saved(send)
        finally:
            del self._waiting[connection]
            for send in queue:  # the manager is stopping
                self.sends.end(send)

    async def _act_saved(self, send: PendingSend, verdict: Verdict | None = None) -> None:
        with self.sends.ending(send):
            verdict = verdict or self.admit(send.request)
            if self._topics.file.is_dirty:
                await self._topics.file.save()
            self._act(send, verdict)

    def _act(self, send: PendingSend, verdict: Verdict) -> None:
        request = send.request
        verdict = self._refuse_old(request) or verdict  # it may have waited for a slow disk
        if isinstance(verdict, Put):  # no queue has both puts and fast-path sends, so the order is kept
            under_way = self._fast_path.begin_put(verdict.message)  # here: tasks begin in no particular order
            self._tasks.start_soon(self._end_put, send, verdict, under_way)
            send.complete()
            send.goes_on = True
        elif isinstance(verdict, Change):  # its place among the sends of its connection does not matter
            self._tasks.start_soon(self._end_change, send, verdict)
            send.complete()
            send.goes_on = True
        elif isinstance(verdict, Refusal):
            self.refuse(request, verdict.code, verdict.remark)
        else:
            self._fast_path.resend(request, queue_id=verdict.queue_id, sys_flag=verdict.sys_flag)

    def refuse(self, request: SendRequest, code: int, remark: str) -> None:
        self._count_refused(code)
        push_send_reply(self._settings.broker, request, code, remark)

    async def _end_put(self, send: PendingSend, put: Put, under_way: PutUnderWay) -> None:
        with self.sends.ending(send):
            self._answer_put(send.request, put.queue_id, await under_way.wait())

    async def _end_change(self, send: PendingSend, verdict: Change) -> None:
        with self.sends.ending(send):
            self._answer_put(send.request, verdict.queue_id, await self._timer_changes.apply(verdict.change))

    def _answer_put(self, request: SendRequest, queue_id: int, result: PutResult) -> None:
        if result.is_stored:
            push_stored_reply(self._settings.broker, request, result, queue_id)
        else:
            remark = replies.store_failure(result.code, self._settings.store.max_message_size, result.may_be_stored)
            push_send_reply(self._settings.broker, request, result.code, remark)

    @property
    def _tasks(self) -> trio.Nursery:
        assert self._nursery is not None, "submit() before open()"
        return self._nursery

    # --- the checks, in the reference's order -------------------------------------------------------------------------

    def admit(self, request: SendRequest) -> Verdict:
        """Check a send; create a missing topic or group if the configuration allows it."""
        try:
            return self._admit(request)
        except RocketError as exc:  # no room for the queues of a new topic
            return Refusal(exc.response_code, str(exc))

    def _admit(self, request: SendRequest) -> Verdict:
        target = self.target(request)
        if isinstance(target, Refusal):
            return target
        if request.is_batch:
            return self._check_batch(request, target.queue_id, target.sys_flag)
        return self._check_single(request, target.queue_id, target.sys_flag)

    def target(self, request: SendRequest) -> Refusal | Target:
        """The checks of every message that a client stores, replies included: age, permission, topic, queue. Creates a
        missing topic if the configuration allows it. Raises RocketError if there is no room for its queues."""
        refusal = self._refuse_old(request) or self._refuse_service(request) or self._refuse_topic(request.topic)
        if refusal is not None:
            return refusal
        topic = self._find_topic(request)
        if topic is None:
            remark = f"topic[{request.topic}] not exist, apply first please!{replies.FAQ_SUFFIX}"
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.perm & PermName.WRITE:  # the reference checks neither this nor, for most topics, the broker's
            return Refusal(ResponseCode.NO_PERMISSION, f"the topic[{request.topic}] sending message is forbidden")
        if request.queue_id >= max(topic.write_queue_nums, topic.read_queue_nums):
            illegal = f"request queueId[{request.queue_id}] is illegal, {replies.topic_text(topic)}"
            remark = f"{illegal} Producer: {request.channel.peer}"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        queue_id = request.queue_id if request.queue_id >= 0 else self._random_queue(topic.write_queue_nums)
        sys_flag = request.sys_flag | (MULTI_TAGS if topic.topic_filter_type is TopicFilterType.MULTI_TAG else 0)
        return Target(queue_id, sys_flag)

    def _refuse_old(self, request: SendRequest) -> Refusal | None:
        """Decided by the full age of the request, including pauses of workers, because its client waits no longer
        (docs/adr/0070). Nobody waits for a oneway send and nobody repeats it, so it is never too old."""
        age_ms = self._clock.monotonic_ms() - request.received_ms
        if request.is_oneway or not self._settings.broker.broker_fast_failure_enable:
            return None
        if age_ms <= self._settings.rocketpy.slow_send_age_max_millis:
            return None
        return Refusal(ResponseCode.SYSTEM_BUSY, too_old(age_ms, len(self.sends)))

    def _refuse_service(self, request: SendRequest) -> Refusal | None:
        config = self._settings.broker
        if self._settings.is_slave:  # before a topic is created for a message that cannot be stored
            return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, replies.SENDS_REFUSED_BY_SLAVE)
        start_ms = config.start_accept_send_request_time_stamp
        if self._clock.now_ms() < start_ms:
            return Refusal(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {replies.human_time(start_ms)}")
        if not config.broker_permission & PermName.WRITE:
            return Refusal(ResponseCode.NO_PERMISSION, f"the broker[{config.broker_ip1}] sending message is forbidden")
        return None

    @staticmethod
    def _refuse_topic(topic: str) -> Refusal | None:
        fault = replies.invalid_topic(topic)
        if fault is not None:
            return Refusal(ResponseCode.SYSTEM_ERROR, fault)
        if topic in names.NOT_ALLOWED_SEND_TOPICS:
            return Refusal(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
        return None

    def _find_topic(self, request: SendRequest) -> TopicConfig | None:
        topic = self._topics.select(request.topic)
        if topic is not None:
            return topic
        is_retry = names.is_retry_topic(request.topic)
        unit_flag = TOPIC_SYS_FLAG_UNIT_SUB if is_retry else TOPIC_SYS_FLAG_UNIT
        sys_flag = unit_flag if request.unit_mode else 0
        topic = self._topics.create_in_send(
            request.topic,
            default_topic=request.default_topic,
            client_queue_nums=request.default_topic_queue_nums,
            topic_sys_flag=sys_flag,
        )
        if topic is None and is_retry:
            topic = self._topics.create_if_missing(request.topic, queue_nums=1, topic_sys_flag=sys_flag)
        return topic

    def _check_batch(self, request: SendRequest, queue_id: int, sys_flag: int) -> Verdict:
        is_special = bool(sys_flag & TRANSACTION_MASK) or delay_level_of(request.properties) > 0
        is_special = is_special or timer_change_of(request) is not None
        if is_special or len(request.body) > self._settings.store.max_message_size:
            return self._illegal()
        return Resend(queue_id, sys_flag)

    def _check_single(self, request: SendRequest, queue_id: int, sys_flag: int) -> Verdict:
        if names.is_retry_topic(request.topic):
            verdict = self._check_retry(request, queue_id, sys_flag)
            if verdict is not None:
                return verdict
        if self._is_illegal(request):
            return self._illegal()
        if (text_property(request.properties, TRAN_MSG) or "").lower() == "true":
            return self._half_message(request, queue_id, sys_flag)
        change = timer_change_of(request)
        if change is not None:
            return Change(change, queue_id)
        level = self._delay_levels.clamp(delay_level_of(request.properties))
        if level > 0:
            real = {"REAL_TOPIC": request.topic, "REAL_QID": str(queue_id)}
            properties = with_values(without_timer(request.properties), DELAY=str(level), **real, **_wait(request))
            return self._elsewhere(request, names.SCHEDULE_TOPIC, level - 1, queue_id, sys_flag, properties)
        if request.is_timer:  # the send worker stores it there
            self._topics.create_if_missing(names.TIMER_TOPIC, queue_nums=1)
            self._topics.create_if_missing(names.dlq_topic(names.TIMER_TOPIC), queue_nums=1)
        return Resend(queue_id, sys_flag)

    def _check_retry(self, request: SendRequest, queue_id: int, sys_flag: int) -> Verdict | None:
        """A consumer sends a failed message to its retry topic itself; after too many retries it goes to the dead
        letters."""
        group = self._groups.find_or_create(request.topic.removeprefix(names.RETRY_PREFIX))
        if group is None:
            name = request.topic.removeprefix(names.RETRY_PREFIX)
            remark = f"subscription group not exist, {name} {replies.FAQ_SUFFIX}"
            return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        tries_max = group.retry_max_times
        if request.version >= MQVersion.V3_4_9 and request.max_reconsume_times is not None:
            tries_max = request.max_reconsume_times
        if request.reconsume_times < tries_max:
            return None
        dead_letters = self._topics.create_if_missing(names.dlq_topic(group.group_name), queue_nums=1)
        target_queue = self._random_queue(dead_letters.write_queue_nums)
        kept = without_property(request.properties, DELAY.encode())
        return self._elsewhere(request, dead_letters.topic_name, target_queue, queue_id, sys_flag, kept)

    def _half_message(self, request: SendRequest, queue_id: int, sys_flag: int) -> Verdict:
        if self._settings.broker.reject_transaction_message:
            remark = f"the broker[{self._settings.broker.broker_ip1}] sending transaction message is forbidden"
            return Refusal(ResponseCode.NO_PERMISSION, remark)
        for system_topic in (names.TRANS_HALF_TOPIC, names.TRANS_OP_HALF_TOPIC):
            self._topics.create_if_missing(system_topic, queue_nums=1)
        real = {"REAL_TOPIC": request.topic, "REAL_QID": str(queue_id)}
        properties = with_values(request.properties, **real, **_wait(request))
        return self._elsewhere(request, names.TRANS_HALF_TOPIC, 0, queue_id, sys_flag & ~TRANSACTION_MASK, properties)

    def _elsewhere(
        self, request: SendRequest, topic: str, target_queue: int, queue_id: int, sys_flag: int, properties: bytes
    ) -> Verdict:
        """Store the message in another topic. The response names the queue id that the sender chose."""
        encoded = with_values(properties, **{CLUSTER: self._settings.broker.broker_cluster_name})
        if len(encoded) > PROPERTIES_SIZE_MAX or self._is_illegal(request):
            return self._illegal()
        message = MessageToPut(
            topic=topic,
            queue_id=target_queue,
            body=request.body,
            properties=encoded,
            message_flag=request.message_flag,
            sys_flag=sys_flag,
            born_timestamp_ms=request.born_timestamp_ms,
            born_host=(request.channel.peer.host, request.channel.peer.port),
            reconsume_times=request.reconsume_times,
            wait_store=request.wait_store,
        )
        return Put(message, queue_id)

    def _is_illegal(self, request: SendRequest) -> bool:
        """Return True if a message breaks a rule that the send worker does not check again when it is stored elsewhere.
        A zero byte looks like a sector lost in a power failure: recovery would end the log at such a record."""
        are_illegal = len(request.properties) > PROPERTIES_SIZE_MAX or b"\0" in request.properties
        return are_illegal or len(request.body) > self._settings.store.max_message_size

    def _illegal(self) -> Refusal:
        code = ResponseCode.MESSAGE_ILLEGAL
        return Refusal(code, replies.store_failure(code, self._settings.store.max_message_size))

    def _random_queue(self, queue_nums: int) -> int:
        return self._choose.randrange(queue_nums) if queue_nums > 0 else 0


def _wait(request: SendRequest) -> dict[str, str]:
    """WAIT as the client gave it. The reference stores it with delayed and half messages, not with others."""
    return {"WAIT": "true" if request.wait_store else "false"} if request.has_wait else {}
