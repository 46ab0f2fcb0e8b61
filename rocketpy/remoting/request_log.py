"""A sample of the served requests, in the log: `requestLogSample=N` has one of N, with its answer and duration.

Each worker counts its own. Processors are wrapped (`sampled`); send and pull workers tell the manager of what they
answer, ends of transactions too (SERVED, csrc/workers/shared/request_log.h); the request server watches the channels of
sends and pulls that Python answers. Without sampling nothing is wrapped.
"""

from __future__ import annotations

import itertools
import logging
import re
import time
from collections.abc import Iterator, Mapping

import attrs

from rocketpy.errors import RocketError
from rocketpy.faults import printable
from rocketpy.logs import NO_VALUE, serving
from rocketpy.values import Value

from .abc import Channel, Detached, Peer, Preparation, Processor, Response
from .command import RemotingCommand

_log = logging.getLogger(__name__)
_NUMBER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
TOPIC_FIELDS = ("topic", "b", "defaultTopic")
GROUP_FIELDS = ("consumerGroup", "group", "groupName", "producerGroup", "a")
OFFSET_FIELDS = ("queueOffset", "commitOffset")
TEXT_MAX = 127  # characters of a name that a client sends


@attrs.frozen(eq=False, repr=False, kw_only=True)
class ServedRequest(Value):
    """A request that was answered."""

    connection: int
    opaque: int
    name: str  # of its code
    peer: Peer
    topic: str
    group: str
    queue: int | str  # NO_VALUE: none
    offset: int | str  # in the queue: of the message stored, or where a pull begins; NO_VALUE: none
    answer: int | str  # a response code, or what came instead
    duration_ms: float

    def log(self) -> None:
        """Write its line."""
        token = serving.set((self.connection, self.opaque))
        try:
            _log.info(
                "served request %s of client %s: topic %s, group %s, queue %s, offset %s, answered %s, "
                "duration %.1f ms",
                *(self.name, self.peer, _shown(self.topic), _shown(self.group), self.queue, self.offset),
                *(self.answer, self.duration_ms),
            )
        finally:
            serving.reset(token)


@attrs.frozen(eq=False)
class SampledProcessor:
    """Passes requests on to `processor`, and logs every `every`th of all that share `numbers`."""

    processor: Processor
    every: int
    numbers: Iterator[int]

    async def process(self, request: RemotingCommand, channel: Channel) -> Response:
        if next(self.numbers) % self.every:
            return await self.processor.process(request, channel)
        began_s = time.monotonic()
        outcome: int | str = "an error"
        try:
            response = await self.processor.process(request, channel)
            outcome = _outcome(response)
            return response
        except RocketError as exc:
            outcome = int(exc.response_code)
            raise
        finally:
            fields = request.ext_fields or {}
            ServedRequest(
                connection=channel.connection,
                opaque=request.opaque,
                name=request.name,
                peer=channel.peer,
                topic=_first(fields, TOPIC_FIELDS),
                group=_first(fields, GROUP_FIELDS),
                queue=_number(fields, ("queueId",)),
                offset=_number(fields, OFFSET_FIELDS),
                answer=outcome,
                duration_ms=(time.monotonic() - began_s) * 1000,
            ).log()


def sampled(processors: Mapping[int, Processor], every: int) -> Mapping[int, Processor]:
    """Return the processors, with a sample of their requests logged if `every` is not 0."""
    if not every:
        return processors
    numbers = itertools.count(1)  # every Nth, as in C
    return {code: SampledProcessor(processor, every, numbers) for code, processor in processors.items()}


def _outcome(response: Response) -> int | str:
    if isinstance(response, Detached | Preparation):
        return "later"
    return "nothing" if response is None else int(response.code)


def _shown(name: str) -> str:
    return printable(name[:TEXT_MAX]) or NO_VALUE


def _first(fields: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((fields[name] for name in names if fields.get(name)), "")


def _number(fields: Mapping[str, str], names: tuple[str, ...]) -> int | str:
    text = _first(fields, names)[:TEXT_MAX]
    return int(text) if _NUMBER.fullmatch(text) else _shown(text)
