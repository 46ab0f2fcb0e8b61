"""Serves a request: finds the processor of its code, and converts errors to responses."""

from __future__ import annotations

from collections.abc import Mapping

from rocketpy.codes import ResponseCode
from rocketpy.errors import RocketError
from rocketpy.faults import Faults

from .abc import Channel, Detached, Processor
from .command import RemotingCommand


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
            response: RemotingCommand | None = RemotingCommand.response(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported"
            )
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
            return await response.finish() if isinstance(response, Detached) else response
        except RocketError as exc:
            return RemotingCommand.response(exc.response_code, str(exc))
        except Exception as exc:
            self.faults.report(place_of(request), exc)
            return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, f"{type(exc).__name__}: {exc}")


def place_of(request: RemotingCommand) -> str:
    """The name under which faults of the request are counted; unknown codes share one."""
    return "a request of unknown code" if request.name == str(request.code) else request.name
