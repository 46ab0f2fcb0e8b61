"""A listener that remembers what it was given, and messages for it."""

from rocketpy import aio
from rocketpy.client.messages import ReceivedMessage
from rocketpy.client.results import ConsumeResult
from tests.support.cluster import FakeBroker


class Seen:
    """A handler that remembers; `results` are given out one by one, then success."""

    def __init__(self, *results: ConsumeResult | Exception | None) -> None:
        self.messages: list[ReceivedMessage] = []
        self.results = list(results)
        self.arrived = aio.Event()

    async def __call__(self, message: ReceivedMessage) -> ConsumeResult | None:
        self.messages.append(message)
        self.arrived.set()
        result = self.results.pop(0) if self.results else None
        if isinstance(result, Exception):
            raise result
        return result

    async def wait(self, count: int) -> None:
        """Where threads work besides, the clock jumps while they do: wait for what happens, not for a time."""
        while len(self.messages) < count:
            self.arrived = aio.Event()
            await self.arrived.wait()

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


def store(broker: FakeBroker, *bodies: bytes, queue_id: int = 0, tags: str = "") -> None:
    for body in bodies:
        broker.store("T", queue_id, body, f"TAGS\x01{tags}".encode() if tags else b"")
