"""Converts a message to a send request and sends it to one broker. producer.py decides about retries.

A timer that was sent before is canceled or moved by a message to the broker that has it (docs/adr/0110).

Source: RocketMQ 4.9 `DefaultMQProducerImpl#sendKernelImpl`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import attrs

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import BrokerError, CompressionError, MessageInvalid, RocketError
from rocketpy.message import properties as names
from rocketpy.message.batch import encode_entry
from rocketpy.message.compression import compress
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.properties import NAME_VALUE_SEPARATOR as NAME_END
from rocketpy.message.properties import PROPERTY_SEPARATOR as PAIR_END
from rocketpy.message.sys_flag import TRANSACTION_PREPARED, with_compression

from ..cluster.instance import ClientInstance
from ..cluster.route_renewal import tells_of_change
from ..messages import Message, check_batch, check_message
from ..options import ProducerOptions
from ..results import SendResult
from .send_headers import SendHeader, SendHeaders

HEADERS_MAX = 4096  # queues whose headers are kept
ROUTE_S = 1.0  # for a failed attempt to wait for the route
NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})
_BEFORE_TAGS, _BEFORE_KEYS, _BEFORE_INSTANCE = (name + NAME_END for name in (names.TAGS, names.KEYS, names.INSTANCE_ID))
_BEFORE_ID = f"{names.WAIT}{NAME_END}true{PAIR_END}{names.UNIQ_KEY}{NAME_END}"
_BEFORE_ID_WITHOUT_WAIT = f"{names.WAIT}{NAME_END}false{PAIR_END}{names.UNIQ_KEY}{NAME_END}"


def cancellation(sent: SendResult) -> Mapping[str, str]:
    """Return the properties that cancel a timer."""
    return {names.TIMER_CANCEL: sent.msg_id}


def move(sent: SendResult, deliver_at_ms: int) -> Mapping[str, str]:
    """Return the properties that move a timer to another time, ms since 1970."""
    return {names.TIMER_MOVE: sent.msg_id, names.TIMER_DELIVER_MS: str(deliver_at_ms)}


class OutgoingMessage(NamedTuple):
    """A message ready to travel, made once per send: all attempts share its id."""

    topic: str
    body: bytes
    properties: Mapping[str, str]
    msg_id: str
    flag: int = 0
    sys_flag: int = 0
    is_batch: bool = False
    born_at_ms: int = 0  # 0: when it is sent

    @property
    def name(self) -> str:
        """For logs and errors: its id; of a batch the first one, and how many follow."""
        first, *others = self.msg_id.split(",")
        return f"{first} and {len(others)} more" if others else first

    @property
    def code(self) -> RequestCode:
        """The request code that sends it."""
        if self.is_batch:
            return RequestCode.SEND_BATCH_MESSAGE
        is_reply = self.properties.get(names.MSG_TYPE) == names.MSG_TYPE_REPLY
        return RequestCode.SEND_REPLY_MESSAGE_V2 if is_reply else RequestCode.SEND_MESSAGE_V2


class Member(NamedTuple):
    """A message of a batch from a program that has many and makes no Message of each.

    `properties`: encoded (`encode_properties`), without WAIT, UNIQ_KEY and INSTANCE_ID; who makes it has checked them.
    """

    body: bytes
    properties: str = ""
    msg_id: str | None = None  # None: sending makes one
    flag: int = 0


def batch_of(topic: str, body: bytes, ids: Iterable[str], *, wait_store: bool, born_at_ms: int) -> OutgoingMessage:
    """Return the batch whose members have these ids, and whose encoded members are `body`."""
    properties = {names.WAIT: "true" if wait_store else "false"}
    return OutgoingMessage(topic, body, properties, ",".join(ids), is_batch=True, born_at_ms=born_at_ms)


def property_text(message: Message, msg_id: str, namespace: str = "") -> str:
    """Return the property string of a message of a batch: in a third of the time that a dictionary of them takes.

    Raises:
        MessageInvalid: a name or value holds a separator.
    """
    given, count = "", 0
    if message.tags:
        given, count = f"{_BEFORE_TAGS}{message.tags}{PAIR_END}", 1
    if message.keys:
        given, count = f"{given}{_BEFORE_KEYS}{names.KEY_SEPARATOR.join(message.keys)}{PAIR_END}", count + 1
    if namespace:
        given, count = f"{given}{_BEFORE_INSTANCE}{namespace}{PAIR_END}", count + 1
    if message.properties:
        given = f"{given}{names.encode_properties(message.properties)}{PAIR_END}"
        count += len(message.properties)
    is_sound = NAME_END not in msg_id and PAIR_END not in msg_id
    if given:
        is_sound = is_sound and given.count(NAME_END) == given.count(PAIR_END) == count
    if is_sound and message.__class__ is Message:
        return given + (_BEFORE_ID if message.wait_store else _BEFORE_ID_WITHOUT_WAIT) + msg_id
    properties = message.to_properties() | {names.UNIQ_KEY: msg_id}
    return names.encode_properties(properties | ({names.INSTANCE_ID: namespace} if namespace else {}))


@attrs.frozen
class Sender:
    """The send requests of one producer group. `next_id` makes unique ids."""

    instance: ClientInstance
    group: str
    options: ProducerOptions
    next_id: Callable[[], str]
    _namespace: str = attrs.field(init=False)
    _headers: dict[MessageQueue, SendHeaders] = attrs.field(init=False, factory=dict)

    @_namespace.default
    def _find_namespace(self) -> str:
        return self.options.namespace_in_use

    def prepare(self, message: Message, own_properties: Mapping[str, str] = NO_PROPERTIES) -> OutgoingMessage:
        """Check, give an id, compress. `own_properties`: reserved ones, which users may not give.

        Raises:
            MessageInvalid: no broker would take it.
        """
        check_message(message, self.options.message_size_max)
        return self.prepare_unchecked(message, own_properties)

    def prepare_unchecked(self, message: Message, own_properties: Mapping[str, str] = NO_PROPERTIES) -> OutgoingMessage:
        """As `prepare`, for messages of our own making, which carry reserved properties."""
        properties = message.to_properties()
        properties.update(own_properties)
        if self._namespace:
            properties[names.INSTANCE_ID] = self._namespace
        msg_id = properties.setdefault(names.UNIQ_KEY, self.next_id())
        body, sys_flag = message.body, TRANSACTION_PREPARED if names.TRAN_MSG in own_properties else 0
        if len(body) >= self.options.compress_over:
            try:
                body = compress(body, self.options.compression, self.options.compress_level)
                sys_flag = with_compression(sys_flag, self.options.compression)
            except CompressionError:
                body = message.body
        return OutgoingMessage(
            message.topic, body, properties, msg_id, message.flag, sys_flag, born_at_ms=message.born_at_ms
        )

    def prepare_batch(self, messages: Sequence[Message]) -> OutgoingMessage:
        """Several messages as one request: never compressed, all to one queue.

        Raises:
            MessageInvalid: a member, the mixture, or the encoded size is not allowed.
        """
        check_batch(messages)
        ids, entries = zip(*map(self.prepare_member, messages), strict=True)
        first, body = messages[0], b"".join(entries)
        check_message(Message(first.topic, body), self.options.message_size_max)
        return batch_of(first.topic, body, ids, wait_store=first.wait_store, born_at_ms=first.born_at_ms)

    def prepare_member(self, message: Message) -> tuple[str, bytes]:
        """Check a message of a batch. Returns its id, and itself in the batch's encoding.

        Raises:
            MessageInvalid: no broker would take it.
        """
        check_message(message, self.options.message_size_max)
        msg_id = message.msg_id or self.next_id()
        text = property_text(message, msg_id, self._namespace)
        return msg_id, encode_entry(message.body, text.encode(), message.flag)

    def prepare_members(self, topic: str, members: Sequence[Member], born_at_ms: int) -> OutgoingMessage:
        """As `prepare_batch`, for members: checks the topic, that bodies are not empty, and sizes.

        Raises:
            MessageInvalid: a member, the topic, or the encoded size is not allowed.
        """
        for member in members:
            if not -(2**31) <= member.flag < 2**31:
                raise MessageInvalid(f"the flag {member.flag} does not fit 32 bits")
            if member.msg_id and (NAME_END in member.msg_id or PAIR_END in member.msg_id):
                raise MessageInvalid(f"the id {member.msg_id!r} contains a separator of properties")
        instance = f"{PAIR_END}{names.INSTANCE_ID}{NAME_END}{self._namespace}" if self._namespace else ""
        before = f"{names.WAIT}{NAME_END}true{instance}{PAIR_END}{names.UNIQ_KEY}{NAME_END}"
        ids, entries = [], []
        for body, properties, given_id, flag in members:
            msg_id = given_id or self.next_id()
            text = f"{before}{msg_id}{PAIR_END}{properties}" if properties else before + msg_id
            ids.append(msg_id)
            entries.append(encode_entry(body, text.encode(), flag))
        if not all(member.body for member in members):
            raise MessageInvalid("the message body is empty")
        body = b"".join(entries)
        check_message(Message(topic, body), self.options.message_size_max)
        return batch_of(topic, body, ids, wait_store=True, born_at_ms=born_at_ms)

    def header(self, message: OutgoingMessage, queue: MessageQueue) -> SendHeader:
        """Return the request header."""
        headers = self._headers.get(queue)
        if headers is None:
            headers = self._headers[queue] = self._headers_of(queue)
        return headers.write(
            message.properties,
            message.sys_flag,
            message.flag,
            message.born_at_ms or self.instance.now_ms(),
            message.is_batch,
        )

    def _headers_of(self, queue: MessageQueue) -> SendHeaders:
        if len(self._headers) >= HEADERS_MAX:
            self._headers.clear()
        return SendHeaders.of(
            queue,
            group=self.group,
            template_topic=self.options.create_topic_key,
            template_queue_nums=self.options.default_topic_queue_nums,
            unit_mode=self.options.unit_mode,
        )

    async def send_to(self, queue: MessageQueue, message: OutgoingMessage, timeout_s: float) -> SendResult:
        """One attempt at one queue. If it fails because the master seems to have changed, the next attempt finds the
        new one: the route has been asked for, unless that took longer than the time that is left.

        Raises:
            ClientError: the broker has no master. TransportError, BrokerError: see MQClientAPI.
        """
        began_s = self.instance.clock()
        known = self.instance.send_address(queue.broker_name)
        if known is None or queue.topic not in self.instance.publish_topics:
            known = await self._address(queue)
        address, header = known, self.header(message, queue)
        try:
            result = await self.instance.api.send(
                address, message.code, header, message.body, queue, message.msg_id, timeout_s
            )
        except RocketError as error:
            if tells_of_change(error) and self.instance.send_address(queue.broker_name) in (None, address):
                await self.instance.doubt_route(queue.topic, min(ROUTE_S, began_s + timeout_s - self.instance.clock()))
            raise
        if result.passed_on:
            self.instance.route_changed(queue.topic)
        return result

    async def _address(self, queue: MessageQueue) -> str:
        """The address of the queue's broker for messages. The route of the topic is refreshed from now on."""
        self.instance.begin_publishing(queue.topic)
        known = self.instance.send_address(queue.broker_name)
        return self.instance.vip(await self.instance.find_master(queue)) if known is None else known

    async def send_oneway_to(self, queue: MessageQueue, message: OutgoingMessage, timeout_s: float) -> None:
        """Send without a response: the result is unknown."""
        address = await self._address(queue)
        await self.instance.api.send_oneway(address, message.code, self.header(message, queue), message.body, timeout_s)

    async def change_timer(self, sent: SendResult, change: Mapping[str, str], timeout_s: float) -> bool:
        """Make one attempt to change a timer by `cancellation` or `move`. False: the timer is not pending.

        Raises: as `send_to`.
        """
        outgoing = self.prepare_unchecked(Message(sent.queue.topic, b""), change)
        try:
            await self.send_to(sent.queue, outgoing, timeout_s)
        except BrokerError as refusal:
            if refusal.response_code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return False
        return True
