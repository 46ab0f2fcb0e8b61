"""Serves a request: finds the processor of its code, and converts errors to responses."""

from __future__ import annotations

from collections.abc import Mapping

from rocketpy.faults import Faults

from .abc import Channel, Processor, finished
from .command import RemotingCommand
from .refusals import error_response, not_supported


class RequestTable:
    """The processors by request code."""

    def __init__(
        self, processors: Mapping[int, Processor], *, default: Processor | None = None, faults: Faults | None = None
    ) -> None:
        """`default` serves the codes that are not in `processors`; without it they are answered "not supported"."""
        self._processors = dict(processors)
        self._default = default
        self.faults = faults or Faults()
        self.refused = Faults(name="refused")  # errors of peers

    async def answer(self, request: RemotingCommand, channel: Channel) -> RemotingCommand | None:
        """The response, ready to be sent, or None: nothing is to be sent.

        Never raises an Exception: a peer that waits for an answer gets one.
        """
        processor = self._processors.get(request.code, self._default)
        if processor is None:
            response: RemotingCommand | None = not_supported(request.code)
        else:
            response = await self._process(processor, request, channel)
        if response is None or request.is_oneway:
            return None
        return response.answering(request)

    async def _process(
        self, processor: Processor, request: RemotingCommand, channel: Channel
    ) -> RemotingCommand | None:
        try:
            response = await processor.process(request, channel)
            return await finished(response)
        except Exception as exc:
            return error_response(request, exc, self.faults)
