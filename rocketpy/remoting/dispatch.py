"""From a request to its response: the processor of its code, and what becomes of errors."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from rocketpy.codes import ResponseCode
from rocketpy.errors import RocketError

from .abc import Channel, Processor
from .command import RemotingCommand

logger = logging.getLogger(__name__)


class Dispatcher:
    """The processors by request code."""

    def __init__(self, processors: Mapping[int, Processor], *, default: Processor | None = None) -> None:
        """`default` gets the codes that are not in `processors`; without it they are answered "not supported"."""
        self._processors = dict(processors)
        self._default = default

    async def dispatch(self, request: RemotingCommand, channel: Channel) -> RemotingCommand | None:
        """The response, ready to be sent, or None: nothing is to be sent.

        Never raises an Exception: a peer that waits for an answer gets one.
        """
        processor = self._processors.get(request.code, self._default)
        if processor is None:
            response: RemotingCommand | None = RemotingCommand.response(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported"
            )
        else:
            response = await _process(processor, request, channel)
        if response is None or request.is_oneway:
            return None
        return response.answering(request)


async def _process(processor: Processor, request: RemotingCommand, channel: Channel) -> RemotingCommand | None:
    try:
        return await processor.process(request, channel)
    except RocketError as exc:
        logger.debug("%s from %s refused: %s", request.name, channel.peer, exc)
        return RemotingCommand.response(exc.response_code, str(exc))
    except Exception as exc:
        logger.exception("%s from %s failed", request.name, channel.peer)
        return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, f"{type(exc).__name__}: {exc}")
