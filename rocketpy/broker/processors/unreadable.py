"""Answers sends, pulls and ends of transactions whose header the codec cannot read: the error names the invalid field.

Source: RocketMQ 4.9 `RemotingCommand#decodeCommandCustomHeader`, `@CFNotNull`.
Short: the codec and its workers serve these codes unless their header is unreadable.
"""

from __future__ import annotations

from rocketpy.codes import RequestCode
from rocketpy.errors import HeaderInvalid
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.pull import PullMessageRequestHeader
from rocketpy.remoting.headers.send import (
    EndTransactionRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from rocketpy.remoting.schema import Header

from .table import TableProcessor

# Fields that the codec requires in addition to the header classes (csrc/workers/codec/codec_request.c).
_OF_SENDS = ("defaultTopicQueueNums", "sysFlag", "bornTimestamp", "flag")
_OF_V2_SENDS = ("d", "f", "g", "h")
_OF_PULLS = ("sysFlag", "commitOffset", "suspendTimeoutMillis", "subVersion")
_HEADERS: dict[int, tuple[type[Header], tuple[str, ...]]] = {
    RequestCode.SEND_MESSAGE: (SendMessageRequestHeader, _OF_SENDS),
    RequestCode.SEND_MESSAGE_V2: (SendMessageRequestHeaderV2, _OF_V2_SENDS),
    RequestCode.SEND_BATCH_MESSAGE: (SendMessageRequestHeaderV2, _OF_V2_SENDS),
    RequestCode.PULL_MESSAGE: (PullMessageRequestHeader, _OF_PULLS),
    RequestCode.LITE_PULL_MESSAGE: (PullMessageRequestHeader, _OF_PULLS),
    RequestCode.END_TRANSACTION: (EndTransactionRequestHeader, ()),
}


class UnreadableProcessor(TableProcessor):
    """Raises HeaderInvalid, which names the field, for every request."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(_HEADERS, self._refuse))

    async def _refuse(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header, mandatory = _HEADERS[request.code]
        header.of(request)
        for field in mandatory:
            if field not in (request.ext_fields or {}):
                raise HeaderInvalid(f"{header.__name__}: the field {field} is missing")
        raise HeaderInvalid(f"{header.__name__}: the header is encoded in a way that is not supported")
