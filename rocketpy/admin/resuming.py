"""Progress file of a pipeline: the next offset of each queue; and a bound for its messages per second.

consumeMessage starts `--from` such a file. The last command of a pipeline writes it (`--save`): what it has not done
yet is read again. The file is replaced whole, once a second and at the end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from rocketpy import aio
from rocketpy.atomic_file import write_atomically
from rocketpy.errors import ConfigError
from rocketpy.message.message_queue import MessageQueue

SAVED_EVERY_S = 1.0
CATCH_UP_S = 0.1


@attrs.define
class Positions:
    """The next offset of each queue. `file` None: it is not kept."""

    file: Path | None = None
    next_offsets: dict[MessageQueue, int] = attrs.field(factory=dict)
    _saved_s: float = 0.0

    @classmethod
    def load(cls, path: Path) -> dict[MessageQueue, int]:
        """The offsets in a file; none if it is not there, as before a first run.

        Raises:
            ConfigError: it holds something else.
        """
        try:
            topics = json.loads(path.read_bytes())
            return {
                MessageQueue(topic, broker, int(queue)): int(offset)
                for topic, brokers in topics.items()
                for broker, queues in brokers.items()
                for queue, offset in queues.items()
            }
        except FileNotFoundError:
            return {}
        except (ValueError, AttributeError, TypeError) as error:
            raise ConfigError(f"holds no positions of queues: {error}", file=path) from error

    @contextmanager
    def kept(self) -> Iterator[None]:
        """A block that notes positions; however it ends, the file is written."""
        try:
            yield
        finally:
            self._save()

    def note(self, queue: MessageQueue, offset: int) -> None:
        """The message at this offset is done."""
        self.next_offsets[queue] = offset + 1
        if time.monotonic() - self._saved_s >= SAVED_EVERY_S:
            self._save()

    def _save(self) -> None:
        if self.file is None or not self.next_offsets:
            return
        self._saved_s = time.monotonic()
        topics: dict[str, dict[str, dict[str, int]]] = {}
        for queue, offset in sorted(self.next_offsets.items()):
            topics.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
        write_atomically(self.file, json.dumps(topics).encode() + b"\n", keep_old=False)


@attrs.define
class Pace:
    """Lets through so many messages per second; 0: all. What waited too long is caught up for at most CATCH_UP_S."""

    per_s: float
    _next_s: float = 0.0

    async def wait(self) -> None:
        """Wait for the turn of the next message."""
        if not self.per_s:
            return
        now_s = aio.now_s()
        turn_s = max(self._next_s, now_s - CATCH_UP_S)
        self._next_s = turn_s + 1 / self.per_s
        if turn_s > now_s:
            await aio.sleep(turn_s - now_s)
