"""Bodies are encrypted between producers and consumers: brokers and their backups have no plain ones.

    export ORDERS_KEYS=$(python -c "from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())")
    NAMESRV_ADDR=127.0.0.1:9876 python docs/use/examples/encryption.py

The first key of ORDERS_KEYS (separated by commas) encrypts, all decrypt: put a new one in front to change it.
"""

import asyncio
import os

import attrs
from cryptography.fernet import Fernet, MultiFernet

from rocketpy.client import (
    START_FIRST,
    ConsumeResult,
    Delivery,
    Hook,
    Message,
    Producer,
    ProducerOptions,
    PushConsumer,
    PushOptions,
    ReceivedMessage,
    Sending,
    SendResult,
)
from rocketpy.client.hooks import ConsumeNext, SendNext


class Encryption(Hook):
    def __init__(self, keys: list[str]) -> None:
        self._keys = MultiFernet([Fernet(key) for key in keys])

    async def send(self, sending: Sending, call_next: SendNext) -> SendResult | None:
        encrypt = self._keys.encrypt
        return await call_next([attrs.evolve(each, body=encrypt(each.body)) for each in sending.messages])

    async def consume(self, delivery: Delivery, call_next: ConsumeNext) -> ConsumeResult:
        decrypt = self._keys.decrypt  # a body that nobody with a key has written raises: the message is retried
        return await call_next([attrs.evolve(each, body=decrypt(each.body)) for each in delivery.messages])


async def main() -> None:
    hooks = (Encryption(os.environ["ORDERS_KEYS"].split(",")),)
    received: asyncio.Queue[ReceivedMessage] = asyncio.Queue()
    options = PushOptions(hooks=hooks, start=START_FIRST)
    async with Producer("shop", ProducerOptions(hooks=hooks)) as producer:
        await producer.send(Message("Orders", b"order 1", tags="secret"))
    async with PushConsumer("billing", {"Orders": "secret"}, received.put, options=options):
        print((await received.get()).body.decode())


if __name__ == "__main__":
    asyncio.run(main())
