"""Answers requests: finds the processor of a code, and makes the answers of every server to requests that it cannot
serve (errors, unknown codes, overload).
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketpy.codes import ResponseCode
from rocketpy.errors import RocketError
from rocketpy.faults import Faults
from rocketpy.logs import serving

from .abc import Channel, Processor, final_response
from .command import RemotingCommand

OVERLOAD = "[OVERLOAD]system busy, start flow control for a while"  # remark of the reference


def too_old(age_ms: int, waiting: int) -> str:
    """Remark for a request that has waited too long, with so many others."""
    return (
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
        f"period in queue: {age_ms}ms, size of queue: {waiting}"
    )


def code_and_remark(exc: Exception, faults: Faults, place: str) -> tuple[int, str]:
    """Return the code and remark of the answer after a handler raised `exc`.

    A RocketError has both; anything else is a bug of ours, and is reported to `faults`.
    """
    if isinstance(exc, RocketError):
        return exc.response_code, str(exc)
    faults.report(place, exc)
    return ResponseCode.SYSTEM_ERROR, f"{type(exc).__name__}: {exc}"


def error_response(request: RemotingCommand, exc: Exception, faults: Faults) -> RemotingCommand:
    """Return the answer to `request` after its handler raised `exc`, as `code_and_remark` says."""
    return RemotingCommand.response(*code_and_remark(exc, faults, place_of(request)))


def not_supported(code: int) -> RemotingCommand:
    return RemotingCommand.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, not_supported_remark(code))


def not_supported_remark(code: int) -> str:
    return f" request type {code} not supported"


def place_of(request: RemotingCommand) -> str:
    """The name under which faults of the request are counted; unknown codes share one."""
    return "a request of unknown code" if request.name == str(request.code) else request.name


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
            serving.set((channel.connection, request.opaque))
            response = await self._process(processor, request, channel)
            serving.set(None)
        if response is None or request.is_oneway:
            return None
        return response.answering(request)

    async def _process(
        self, processor: Processor, request: RemotingCommand, channel: Channel
    ) -> RemotingCommand | None:
        try:
            response = await processor.process(request, channel)
            return await final_response(response)
        except Exception as exc:
            return error_response(request, exc, self.faults)
