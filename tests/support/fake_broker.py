"""A broker in memory: serves sends, pulls (also suspended ones), offsets, groups and locks, as far as clients look."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import attrs

from rocketpy import aio
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.message.batch import decode_batch
from rocketpy.message.host import parse_host
from rocketpy.message.message_id import encode_offset_message_id
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import RETRY_PREFIX, dlq_topic, is_retry_topic, retry_topic
from rocketpy.message.properties import decode_properties
from rocketpy.message.record import RECORD_HEAD_MAX, encode_record, store_timestamp_of
from rocketpy.message.tags import string_hash
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.bodies.client import ConsumerData, HeartbeatData, SubscriptionData
from rocketpy.remoting.bodies.group import (
    GetConsumerListByGroupResponseBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
)
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.client import (
    GetConsumerListByGroupRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
    UnregisterClientRequestHeader,
)
from rocketpy.remoting.headers.offset import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketpy.remoting.headers.pull import (
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    PullSysFlag,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from rocketpy.remoting.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    read_send_header,
)
from tests.support.scripted_server import ScriptedServer, no


@attrs.define(eq=False)
class FakeBroker(ScriptedServer):
    """One broker of a FakeCluster. `records` and `offsets` are what a test looks at."""

    name: str = "broker-a"
    now_ms: Callable[[], int] = lambda: 0
    records: dict[tuple[str, int], list[bytes]] = attrs.field(factory=lambda: defaultdict(list))
    by_offset: dict[int, bytes] = attrs.field(factory=dict)
    min_offsets: dict[tuple[str, int], int] = attrs.field(factory=lambda: defaultdict(int))
    offsets: dict[tuple[str, str, int], int] = attrs.field(factory=dict)
    members: dict[str, dict[str, Channel]] = attrs.field(factory=lambda: defaultdict(dict))
    consumers: dict[str, ConsumerData] = attrs.field(factory=dict)
    producers: dict[str, set[str]] = attrs.field(factory=lambda: defaultdict(set))
    locks: dict[tuple[str, MessageQueue], str] = attrs.field(factory=dict)
    sent_back: list[ConsumerSendMsgBackRequestHeader] = attrs.field(factory=list)
    topics: dict[str, int] = attrs.field(factory=dict)  # topic -> queues
    arrived: aio.Event = attrs.field(factory=aio.Event)
    end: int = 0

    def __attrs_post_init__(self) -> None:
        code = RequestCode
        self.answers |= {
            code.HEART_BEAT: self.heartbeat,
            code.UNREGISTER_CLIENT: self.unregister,
            code.GET_CONSUMER_LIST_BY_GROUP: self.list_members,
            code.SEND_MESSAGE_V2: self.send,
            code.SEND_BATCH_MESSAGE: self.send,
            code.PULL_MESSAGE: self.pull,
            code.QUERY_CONSUMER_OFFSET: self.query_offset,
            code.UPDATE_CONSUMER_OFFSET: self.update_offset,
            code.GET_MAX_OFFSET: self.max_offset,
            code.GET_MIN_OFFSET: self.min_offset,
            code.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset,
            code.CONSUMER_SEND_MSG_BACK: self.send_back,
            code.LOCK_BATCH_MQ: self.lock,
            code.UNLOCK_BATCH_MQ: self.unlock,
            code.VIEW_MESSAGE_BY_ID: self.view,
            code.QUERY_MESSAGE: self.query,
        }

    # --- groups -------------------------------------------------------------------------------------------------------

    def heartbeat(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        data = HeartbeatData.decode(request.body)
        for producer in data.producer_data_set:
            self.producers[producer.group_name].add(data.client_id)
        for consumer in data.consumer_data_set:
            self.topics.setdefault(retry_topic(consumer.group_name), 1)
            self.consumers[consumer.group_name] = consumer
            if data.client_id not in self.members[consumer.group_name]:
                self.members[consumer.group_name][data.client_id] = channel
                self.notify(consumer.group_name)
        return RemotingCommand.response()

    def notify(self, group: str) -> None:
        header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
        for channel in self.members[group].values():
            channel.push(RemotingCommand.oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header))

    def unregister(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = UnregisterClientRequestHeader.of(request)
        if header.producer_group:
            self.producers[header.producer_group].discard(header.client_id)
        if header.consumer_group and self.members[header.consumer_group].pop(header.client_id, None):
            self.notify(header.consumer_group)
        return RemotingCommand.response()

    def list_members(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        members = self.members[GetConsumerListByGroupRequestHeader.of(request).consumer_group]
        if not members:
            return no(ResponseCode.SYSTEM_ERROR, "nobody")
        return RemotingCommand.response(
            body=GetConsumerListByGroupResponseBody(consumer_id_list=list(members)).encode()
        )

    # --- messages -----------------------------------------------------------------------------------------------------

    def send(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = read_send_header(request)
        self.topics.setdefault(header.topic, header.default_topic_queue_nums)
        if header.queue_id >= self.topics[header.topic]:
            return no(ResponseCode.SYSTEM_ERROR, "queueId is illegal")
        own = (header.properties or "").encode()
        entries = (
            [(entry.body, entry.properties) for entry in decode_batch(request.body or b"")]
            if header.batch
            else [(request.body or b"", own)]
        )
        ids, first = [], self.next_offset(header.topic, header.queue_id)
        for body, properties in entries:
            ids.append(
                self.store(
                    dlq_topic(header.topic.removeprefix(RETRY_PREFIX)) if is_dead_letter(header) else header.topic,
                    header.queue_id,
                    body,
                    properties,
                    sys_flag=header.sys_flag,
                    flag=header.flag,
                    reconsume_times=header.reconsume_times or 0,
                    born_ms=header.born_timestamp_ms,
                )
            )
        return RemotingCommand.response(
            header=SendMessageResponseHeader(
                msg_id=",".join(ids), queue_id=header.queue_id, queue_offset=first, region="R", trace_on=True
            )
        )

    def next_offset(self, topic: str, queue_id: int) -> int:
        return self.min_offsets[topic, queue_id] + len(self.records[topic, queue_id])

    def store(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes = b"",
        *,
        sys_flag: int = 0,
        flag: int = 0,
        reconsume_times: int = 0,
        born_ms: int = 0,
    ) -> str:
        self.topics.setdefault(topic, queue_id + 1)
        image = encode_record(
            topic=topic,
            queue_id=queue_id,
            body=body,
            properties=properties,
            born_timestamp_ms=born_ms,
            born_host=("127.0.0.1", 1),
            store_timestamp_ms=self.now_ms(),
            store_host=parse_host(self.address),
            queue_offset=self.next_offset(topic, queue_id),
            phy_offset=self.end,
            flag=flag,
            sys_flag=sys_flag,
            reconsume_times=reconsume_times,
        )
        self.records[topic, queue_id].append(image)
        self.by_offset[self.end] = image
        message_id = encode_offset_message_id(parse_host(self.address), self.end)
        self.end += len(image)
        self.arrived.set()
        self.arrived = aio.Event()
        return message_id

    async def pull(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = PullMessageRequestHeader.of(request)
        deadline = aio.now_s() + header.suspend_timeout_ms / 1000
        if header.sys_flag & PullSysFlag.COMMIT_OFFSET:
            self.offsets[header.consumer_group, header.topic, header.queue_id] = header.commit_offset
        if not header.sys_flag & PullSysFlag.SUBSCRIPTION:
            known = self.subscription(header.consumer_group, header.topic)
            if known is None:
                return no(ResponseCode.SUBSCRIPTION_NOT_EXIST)
            if known.sub_version < header.sub_version:
                return no(ResponseCode.SUBSCRIPTION_NOT_LATEST)
        while True:
            response = self.pull_once(header)
            held = response.code == ResponseCode.PULL_NOT_FOUND and header.sys_flag & PullSysFlag.SUSPEND
            if not held or aio.now_s() >= deadline:
                return response
            with aio.move_on_at(deadline):
                await self.arrived.wait()

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        consumer = self.consumers.get(group)
        found = [data for data in consumer.subscription_data_set if data.topic == topic] if consumer else []
        return found[0] if found else None

    def pull_once(self, header: PullMessageRequestHeader) -> RemotingCommand:
        low = self.min_offsets[header.topic, header.queue_id]
        high = self.next_offset(header.topic, header.queue_id)
        at = header.queue_offset
        found: list[bytes] = []
        if at < low or at > high:
            code, after = ResponseCode.PULL_OFFSET_MOVED, low if at < low else high
        elif at == high:
            code, after = ResponseCode.PULL_NOT_FOUND, at
        else:
            images = self.records[header.topic, header.queue_id][at - low : at - low + header.max_msg_nums]
            after = at + len(images)
            found = [image for image in images if self.matches(header, image)]
            code = ResponseCode.SUCCESS if found else ResponseCode.PULL_RETRY_IMMEDIATELY
        answer = PullMessageResponseHeader(
            suggest_which_broker_id=0, next_begin_offset=after, min_offset=low, max_offset=high
        )
        return RemotingCommand.response(code, header=answer, body=b"".join(found) or None)

    def matches(self, header: PullMessageRequestHeader, image: bytes) -> bool:
        """By tag hash only, as brokers do."""
        if header.sys_flag & PullSysFlag.SUBSCRIPTION:
            text = header.subscription or "*"
            codes = [] if text == "*" else [string_hash(tag.strip()) for tag in text.split("||")]
        else:
            known = self.subscription(header.consumer_group, header.topic)
            codes = known.code_set if known else []
        return not codes or string_hash(tags_of(image)) in codes

    def view(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        image = self.by_offset.get(ViewMessageRequestHeader.of(request).offset)
        return RemotingCommand.response(body=image) if image else no(ResponseCode.SYSTEM_ERROR, "no message there")

    def query(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = QueryMessageRequestHeader.of(request)
        found = [
            image
            for (topic, _), images in self.records.items()
            for image in images
            if topic == header.topic and header.key.encode() in image
        ]
        answer = QueryMessageResponseHeader(index_last_update_timestamp_ms=0, index_last_update_phy_offset=0)
        code = ResponseCode.SUCCESS if found else ResponseCode.QUERY_NOT_FOUND
        return RemotingCommand.response(code, header=answer, body=b"".join(found) or None)

    # --- offsets and locks --------------------------------------------------------------------------------------------

    def query_offset(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = QueryConsumerOffsetRequestHeader.of(request)
        offset = self.offsets.get((header.consumer_group, header.topic, header.queue_id))
        if offset is None:
            return no(ResponseCode.QUERY_NOT_FOUND)
        return RemotingCommand.response(header=OffsetResponseHeader(offset=offset))

    def update_offset(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = UpdateConsumerOffsetRequestHeader.of(request)
        self.offsets[header.consumer_group, header.topic, header.queue_id] = header.commit_offset
        return RemotingCommand.response()

    def max_offset(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = QueueRequestHeader.of(request)
        return RemotingCommand.response(
            header=OffsetResponseHeader(offset=self.next_offset(header.topic, header.queue_id))
        )

    def min_offset(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = QueueRequestHeader.of(request)
        return RemotingCommand.response(
            header=OffsetResponseHeader(offset=self.min_offsets[header.topic, header.queue_id])
        )

    def search_offset(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        """Of several messages stored at the nearest time, the last one: brokers answer with any of them."""
        header = SearchOffsetRequestHeader.of(request)
        key = (header.topic, header.queue_id)
        times = [store_timestamp_of(image[:RECORD_HEAD_MAX]) or 0 for image in self.records[key]]
        apart = {offset: abs(time - header.timestamp_ms) for offset, time in enumerate(times, self.min_offsets[key])}
        found = min(apart, key=lambda offset: (apart[offset], -offset), default=self.min_offsets[key])
        return RemotingCommand.response(header=OffsetResponseHeader(offset=found))

    def send_back(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        """Stores the copy in the retry topic at once, whatever the delay level."""
        header = ConsumerSendMsgBackRequestHeader.of(request)
        self.sent_back.append(header)
        return RemotingCommand.response()

    def lock(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        body = LockBatchRequestBody.decode(request.body)
        holders = {q: self.locks.setdefault((body.consumer_group, q), body.client_id) for q in body.mq_set}
        mine = [queue for queue, holder in holders.items() if holder == body.client_id]
        return RemotingCommand.response(body=LockBatchResponseBody(lock_ok_mq_set=mine).encode())

    def unlock(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        body = LockBatchRequestBody.decode(request.body)
        for queue in body.mq_set:
            if self.locks.get((body.consumer_group, queue)) == body.client_id:
                del self.locks[body.consumer_group, queue]
        return RemotingCommand.response()


def is_dead_letter(header: SendMessageRequestHeaderV2) -> bool:
    """Return True for a retried message that has no attempts left: brokers move it to the dead letters."""
    times_max = header.max_reconsume_times
    return is_retry_topic(header.topic) and times_max is not None and (header.reconsume_times or 0) >= times_max


def tags_of(image: bytes) -> str:
    """The TAGS of a record, empty when it has none."""
    at = image.rfind(b"TAGS\x01")
    return decode_properties(image[at:].decode("utf-8", "replace")).get("TAGS", "") if at >= 0 else ""
