"""Our own client, driven like the official ones: send, push, litepull, request, reply or transaction.
Runs until its input ends, under asyncio, or with --backend trio under trio."""

from __future__ import annotations

import itertools
import json
import sys
import time
import zlib
from collections.abc import Iterable

from rocketpy import aio
from rocketpy.client.consuming.subscription import Sql92
from rocketpy.client.messages import Message, ReceivedMessage
from rocketpy.client.options import START_FIRST, ConsumeMode, ProducerOptions, PullOptions, PushOptions
from rocketpy.client.producer import Producer
from rocketpy.client.pull_consumer import PullConsumer
from rocketpy.client.push_consumer import PushConsumer
from rocketpy.client.results import ConsumeResult, SendResult
from rocketpy.client.transaction_producer import LocalTransactionState, TransactionProducer
from rocketpy.errors import BrokerError, RocketError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.sys_flag import CompressionType

HEAD = 64  # bytes of a body that are shown
LOOK_S = 0.05
POLL_S = 0.1


def show(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def show_sent(key: str, result: SendResult) -> None:
    show(
        "sent",
        key=key,
        status=result.status.value,
        msgId=result.msg_id,
        offsetMsgId=result.offset_msg_id,
        queueId=result.queue.queue_id,
        queueOffset=result.queue_offset,
    )


def show_message(message: ReceivedMessage) -> None:
    show(
        "message",
        topic=message.topic,
        key=" ".join(message.keys),
        tags=message.tags,
        msgId=message.msg_id,
        queueId=message.queue.queue_id,
        queueOffset=message.queue_offset,
        bodySize=len(message.body),
        bodyCrc=zlib.crc32(message.body),
        bodyHead=message.body[:HEAD].decode(),
        sysFlag=message.sys_flag,
        flag=message.flag,
        phyOffset=message.phy_offset,
        bornTimestamp=message.born_timestamp_ms,
        storeTimestamp=message.store_timestamp_ms,
        reconsumeTimes=message.reconsume_times,
        properties=dict(message.properties),
        consumedMs=time.time_ns() // 1_000_000,
    )


async def wait_for_end_of_input() -> None:
    while await aio.in_thread(sys.stdin.readline):
        pass


def make_message(given: dict[str, str], i: int) -> Message:
    name = f"{given['prefix']}-{i}"
    lines = [name]
    size = len(name)
    while size < int(given.get("size", "0")):
        lines.append(f" line {len(lines) - 1}")
        size += len(lines[-1])
    tags = given.get("tags", "TagA").split(",")
    properties = {"number": str(i), "text": "Grüße, 世界"}
    body = "".join(lines).encode()
    return Message(given["topic"], body, tags=tags[i % len(tags)], keys=name, properties=properties, flag=i)


class Shards:
    """Keeps one shard in one queue."""

    def select(self, queues: Iterable[MessageQueue], message: Message, key: object) -> MessageQueue | None:
        listed = list(queues)
        return listed[int(str(key)) % len(listed)]


async def stream(given: dict[str, str]) -> None:
    """One after the other until the input ends, each tried once unless --retries says otherwise, so that no message is
    stored twice by the client."""
    options = ProducerOptions(
        name_servers=given["namesrv"],
        send_timeout=3.0,
        retries=int(given.get("retries", "0")),
        poll_name_server_interval=poll_interval(given),
    )
    async with Producer(given["group"], options) as producer, aio.open_nursery() as nursery:
        show("ready")

        async def send_all() -> None:
            for i in itertools.count():
                message = make_message(given, i)
                try:
                    show_sent(message.keys[0], await producer.send(message))
                except RocketError as error:
                    show("failed", key=message.keys[0], error=str(error))
                await aio.sleep(int(given.get("pause", "5")) / 1000)

        nursery.start_soon(send_all)
        await wait_for_end_of_input()
        nursery.cancel()
    show("done")


def poll_interval(given: dict[str, str]) -> float:
    return int(given.get("poll", "30000")) / 1000


async def send(given: dict[str, str]) -> None:
    if given.get("mode") == "stream":
        return await stream(given)
    options = ProducerOptions(
        name_servers=given["namesrv"],
        send_timeout=10.0,
        trace=given.get("trace") == "true",
        compression=CompressionType[given.get("compression", "ZLIB")],
    )
    async with Producer(given["group"], options) as producer:
        show("ready")
        messages = [make_message(given, i) for i in range(int(given.get("count", "1")))]
        shards = int(given.get("shards", "0"))
        match given.get("mode", "sync"):
            case "sync":
                for i, message in enumerate(messages):
                    chosen = {"selector": Shards(), "key": i % shards} if shards else {}
                    show_sent(message.keys[0], await producer.send(message, **chosen))
            case "async":
                handles = [(message.keys[0], await producer.send_soon(message)) for message in messages]
                for key, handle in handles:
                    show_sent(key, await handle)
            case "oneway":
                for message in messages:
                    await producer.send_oneway(message)
            case "batch":
                show_sent("batch", await producer.send_batch(messages))
        if given.get("stay") == "true":
            await wait_for_end_of_input()
    show("done")


async def watch_queues(consumer: PushConsumer, topic: str) -> None:
    known = None
    while True:
        mine = sorted(queue.queue_id for queue in consumer.assignment if queue.topic == topic)
        if mine != known:
            known = mine
            show("queues", queues=mine)
        await aio.sleep(LOOK_S)


async def push(given: dict[str, str]) -> None:
    async def handle(message: ReceivedMessage) -> ConsumeResult | None:
        show_message(message)
        return ConsumeResult.retry() if given.get("fail") == "true" else None

    options = PushOptions(
        reconsume_times_max=int(given.get("attempts", "-1")),
        name_servers=given["namesrv"],
        instance_name=given.get("instance", "DEFAULT"),
        start=START_FIRST,
        mode=ConsumeMode[given.get("model", "clustering").upper()],
        ordered=given.get("orderly") == "true",
        trace=given.get("trace") == "true",
        poll_name_server_interval=poll_interval(given),
    )
    sql = given.get("sql")
    subscriptions = {given["topic"]: Sql92(sql) if sql else given.get("expression", "*")}
    consumer = PushConsumer(given["group"], subscriptions, handle, options=options)
    try:
        async with consumer, aio.open_nursery() as nursery:
            show("ready", clientId=consumer.client_id)
            nursery.start_soon(watch_queues, consumer, given["topic"])
            await wait_for_end_of_input()
            nursery.cancel()
    except BrokerError as refused:
        show("failed", key="start", error=str(refused))
        return
    show("done")


async def lite_pull(given: dict[str, str]) -> None:
    topic = given["topic"]
    stop = aio.Event()
    options = PullOptions(name_servers=given["namesrv"], auto_commit=False, start=START_FIRST)

    async def stop_at_end_of_input() -> None:
        await wait_for_end_of_input()
        stop.set()

    async with (
        aio.open_nursery() as nursery,
        PullConsumer(given["group"], options) as consumer,
    ):
        if given.get("mode", "subscribe") == "assign":
            queues = [queue for queue in await consumer.queues(topic) if chosen(given, queue.queue_id)]
            await consumer.assign(queues)
            if given.get("begin") == "true":
                for queue in queues:
                    await consumer.seek_to_begin(queue)
        else:
            await consumer.subscribe(topic, given.get("expression", "*"))
        show("ready")
        nursery.start_soon(stop_at_end_of_input)
        while not stop.is_set():
            for message in await consumer.poll(timeout=POLL_S):
                show_message(message)
        await consumer.commit()
    show("done")


async def request(given: dict[str, str]) -> None:
    timeout = int(given.get("timeout", "20000")) / 1000

    async def one(message: Message) -> None:
        key = message.keys[0]
        try:
            reply = await producer.request(message, timeout=timeout)
        except RocketError as error:
            show("failed", key=key, error=str(error))
            return
        crc = zlib.crc32(reply.body)
        show("reply", key=key, bodySize=len(reply.body), bodyCrc=crc, properties=dict(reply.properties))

    async with Producer(given["group"], ProducerOptions(name_servers=given["namesrv"])) as producer:
        show("ready")
        async with aio.open_nursery() as nursery:
            for i in range(int(given.get("count", "1"))):
                if given.get("mode", "sync") == "sync":
                    await one(make_message(given, i))
                else:
                    nursery.start_soon(one, make_message(given, i))
    show("done")


async def reply(given: dict[str, str]) -> None:
    """Answers each message M with `re: M`; prints its queues."""

    async def handle(message: ReceivedMessage) -> None:
        result = await producer.send(message.reply(b"re: " + message.body))
        show_sent(message.keys[0], result)

    options = PushOptions(name_servers=given["namesrv"], start=START_FIRST)
    async with (
        Producer(given["group"] + "_replies", ProducerOptions(name_servers=given["namesrv"])) as producer,
        PushConsumer(given["group"], {given["topic"]: "*"}, handle, options=options) as consumer,
        aio.open_nursery() as nursery,
    ):
        show("ready")
        nursery.start_soon(watch_queues, consumer, given["topic"])
        await wait_for_end_of_input()
        nursery.cancel()
    show("done")


class Decider:
    """Says the outcome of a message by its number."""

    def __init__(self, given: dict[str, str]) -> None:
        self._outcomes = given.get("outcomes", "commit").split(",")
        self._answers = given.get("answers", "commit").split(",")

    async def execute(self, message: Message, number: int) -> LocalTransactionState:
        return LocalTransactionState[self._outcomes[number % len(self._outcomes)].upper()]

    async def check(self, message: ReceivedMessage) -> LocalTransactionState:
        show("checked", key=" ".join(message.keys), msgId=message.msg_id)
        return LocalTransactionState[self._answers[int(message.properties["number"]) % len(self._answers)].upper()]


async def transaction(given: dict[str, str]) -> None:
    """Sends messages in transactions whose outcome is the one of their number in turn, and answers checks likewise."""
    options = ProducerOptions(name_servers=given["namesrv"], send_timeout=10.0)
    async with TransactionProducer(given["group"], Decider(given), options) as producer:
        await producer.queues(given["topic"])
        show("ready")
        for i in range(int(given.get("count", "0"))):
            message = make_message(given, i)
            show_sent(message.keys[0], (await producer.send_in_transaction(message, i)).send)
        show("ended")
        await wait_for_end_of_input()
    show("done")


def chosen(given: dict[str, str], queue_id: int) -> bool:
    return "queues" not in given or str(queue_id) in given["queues"].split(",")


def main() -> None:
    command, *pairs = sys.argv[1:]
    given = {name.removeprefix("--"): value for name, value in zip(pairs[::2], pairs[1::2], strict=True)}
    commands = {
        "send": send,
        "push": push,
        "litepull": lite_pull,
        "request": request,
        "reply": reply,
        "transaction": transaction,
    }
    if given.get("backend") == "trio":
        import trio

        trio.run(commands[command], given)
    else:
        aio.run(commands[command], given)


if __name__ == "__main__":
    main()
