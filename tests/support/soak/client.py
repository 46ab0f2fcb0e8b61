"""The programs under test: `client.py producer|consumer NAME_SERVERS BACKEND PAUSE_S`, until their input ends.

A producer prints `sent NUMBER PLACE SECONDS` when a send is acknowledged (SEND_OK), and `open NUMBER - SECONDS` when it
is not known what became of it. A consumer prints `got NUMBER PLACE SECONDS` when its handler has ended. SECONDS: of
the monotonic clock of the machine, at the begin of the send, at the end of the handler.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Awaitable, Callable

from rocketpy import aio
from rocketpy.client import START_FIRST, Message, Producer, ProducerOptions, PushConsumer, PushOptions, ReceivedMessage
from rocketpy.client.results import SendStatus
from rocketpy.errors import RocketError

TOPIC, GROUP = "Soak", "soak"
BODY = bytes(200)


def say(kind: str, number: str, place: str, at_s: float) -> None:
    print(kind, number, place, f"{at_s:.3f}")


async def flush_often() -> None:
    while True:
        await aio.sleep(0.2)
        await aio.in_thread(sys.stdout.flush)


async def produce(namesrv: str, pause_s: float) -> None:
    """One send after the other begins, whether the earlier ones have ended or not; an outage makes 32 wait."""
    options = ProducerOptions(name_servers=namesrv, poll_name_server_interval=10.0, in_flight_max=64)

    async with Producer("soak-producers", options) as producer, aio.open_nursery() as nursery:
        places = aio.Semaphore(32)

        async def send(number: int) -> None:
            begin_s = time.monotonic()
            try:
                result = await producer.send(Message(TOPIC, BODY, keys=str(number)))
            except RocketError:
                say("open", str(number), "-", begin_s)
            else:
                kind = "sent" if result.status is SendStatus.SEND_OK else "open"
                say(kind, str(number), f"{result.queue.queue_id}:{result.queue_offset}", begin_s)
            finally:
                places.release()

        async def send_all() -> None:
            for number in itertools.count():
                await places.acquire()
                nursery.start_soon(send, number)
                await aio.sleep(pause_s)

        nursery.start_soon(send_all)
        nursery.start_soon(flush_often)
        nursery.start_soon(end_with_input, nursery)


async def consume(namesrv: str, pause_s: float) -> None:
    async def handle(message: ReceivedMessage) -> None:
        await aio.sleep(0)
        say("got", message.keys[0], f"{message.queue.queue_id}:{message.queue_offset}", time.monotonic())

    options = PushOptions(
        name_servers=namesrv, start=START_FIRST, persist_offset_interval=1.0, poll_name_server_interval=10.0
    )
    async with PushConsumer(GROUP, {TOPIC: "*"}, handle, options=options), aio.open_nursery() as nursery:
        nursery.start_soon(flush_often)
        nursery.start_soon(end_with_input, nursery)


async def end_with_input(nursery: aio.OpenNursery) -> None:
    while await aio.in_thread(sys.stdin.readline):
        pass
    nursery.cancel()


def run(backend: str, work: Callable[[str, float], Awaitable[None]], namesrv: str, pause_s: float) -> None:
    if backend == "trio":
        import trio

        trio.run(work, namesrv, pause_s)
    else:
        aio.run(work, namesrv, pause_s)


if __name__ == "__main__":
    _, role, name_servers, loop, pause = sys.argv
    run(loop, produce if role == "producer" else consume, name_servers, float(pause))
    sys.stdout.flush()
