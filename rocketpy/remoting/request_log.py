"""A sample of the requests that Python serves, in the log: `requestLogSample=N` has every Nth.

The C workers serve sends, pulls, commits of offsets and ends of transactions without a line; their counts are in
the metrics. Without sampling processors are not wrapped.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator, Mapping

import attrs

from rocketpy.errors import RocketError
from rocketpy.faults import printable
from rocketpy.logs import NO_VALUE

from .abc import Channel, Detached, Preparation, Processor, Response
from .command import RemotingCommand

_log = logging.getLogger(__name__)
TOPIC_FIELDS = ("topic", "b", "defaultTopic")
GROUP_FIELDS = ("consumerGroup", "group", "groupName", "producerGroup", "a")
TEXT_MAX = 127  # characters of a name that a client sends


@attrs.frozen(eq=False)
class SampledProcessor:
    """Passes requests on to `processor`, and logs every `every`th of all that share `numbers`."""

    processor: Processor
    every: int
    numbers: Iterator[int]

    async def process(self, request: RemotingCommand, channel: Channel) -> Response:
        if next(self.numbers) % self.every:
            return await self.processor.process(request, channel)
        began_s, outcome = time.monotonic(), "an error"
        try:
            response = await self.processor.process(request, channel)
            outcome = _outcome(response)
            return response
        except RocketError as exc:
            outcome = str(exc.response_code)
            raise
        finally:
            fields = request.ext_fields or {}
            _log.info(
                "served request %s of client %s: topic %s, group %s, queue %s, answered %s after %.1f ms",
                *(request.name, channel.peer, _first(fields, TOPIC_FIELDS), _first(fields, GROUP_FIELDS)),
                *(_first(fields, ("queueId",)), outcome, (time.monotonic() - began_s) * 1000),
            )


def sampled(processors: Mapping[int, Processor], every: int) -> Mapping[int, Processor]:
    """Return the processors, with a sample of their requests logged if `every` is not 0."""
    if not every:
        return processors
    numbers = itertools.count()
    return {code: SampledProcessor(processor, every, numbers) for code, processor in processors.items()}


def _outcome(response: Response) -> str:
    if isinstance(response, Detached | Preparation):
        return "later"
    return "nothing" if response is None else str(response.code)


def _first(fields: Mapping[str, str], names: tuple[str, ...]) -> str:
    found = next((fields[name] for name in names if fields.get(name)), NO_VALUE)
    return printable(found[:TEXT_MAX])
