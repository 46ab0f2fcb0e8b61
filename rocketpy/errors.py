"""All errors of rocketpy, in one tree.

They answer three questions: whose fault it is (the class), what to reply (`response_code`), and whether the caller may
try again (`retriable`).
"""

from __future__ import annotations

from pathlib import Path

from .codes import RETRIABLE_RESPONSE_CODES, ResponseCode


class RocketError(Exception):
    """Root of the tree. If it is raised while a request is served, the reply has its `response_code` and text."""

    response_code: int = ResponseCode.SYSTEM_ERROR
    retriable: bool = False


class ConfigError(RocketError):
    """A setting that cannot be honoured: names the file, the line and the key."""

    def __init__(
        self, reason: str, *, file: str | Path | None = None, line: int | None = None, key: str | None = None
    ) -> None:
        self.reason = reason
        self.file = file
        self.line = line
        self.key = key
        place = ":".join(str(part) for part in (file, line) if part is not None)
        super().__init__(": ".join(part for part in (place, key, reason) if part))


class AddressesInvalid(ConfigError, ValueError):
    """A text that is no list of name servers. A ValueError, too, as for each option of a client that is not allowed."""


class NativeMissing(RocketError, ImportError):
    """The compiled core is needed and is not available."""


class RequestRefused(RocketError):
    """A server refuses a request: `response_code`, and the remark for the client."""

    def __init__(self, response_code: int, remark: str) -> None:
        super().__init__(remark)
        self.response_code = response_code
        self.remark = remark


class MessageInvalid(RocketError):
    """A message, topic or group that breaks the rules of its kind: too large, empty, illegal characters."""

    response_code = ResponseCode.MESSAGE_ILLEGAL


class FilterInvalid(RocketError):
    """A SQL92 expression that cannot be used; the text says where and why."""

    response_code = ResponseCode.SUBSCRIPTION_PARSE_FAILED


class NumberInvalid(RocketError):
    """A text that is not a whole number, or out of range (message/numbers.py)."""


class CompressionError(RocketError):
    """A body that cannot be (de)compressed here: unknown algorithm, library not installed, damaged data."""


# --- the wire ---------------------------------------------------------------------------------------------------------


class ProtocolError(RocketError):
    """The protocol was broken."""


class LocalProtocolError(ProtocolError):
    """We would have broken it: a bug in the caller."""


class RemoteProtocolError(ProtocolError):
    """The peer broke it; after a framing error the connection is of no further use."""


class FrameTooLarge(RemoteProtocolError):
    """A frame declares more bytes than we accept, or is no frame at all (an HTTP request reads as a huge length)."""


class HeaderInvalid(RemoteProtocolError):
    """A header or a header field that cannot be read: bad JSON, wrong lengths, an invalid number."""


class BodyInvalid(RemoteProtocolError):
    """A body that is not of the form its request code asks for."""


class TlsFailed(RemoteProtocolError):
    """A TLS connection cannot be: `reason` is a word for counts (tls/handshake_counts.py), the text is for people."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


# --- connections ------------------------------------------------------------------------------------------------------


class TransportError(RocketError):
    """The bytes could not be exchanged; another address or a later attempt may succeed."""

    retriable = True


class ConnectFailed(TransportError):
    """No connection to the address within the time allowed."""


class ConnectionLost(TransportError):
    """The connection closed before the answer came; the request may or may not have been served."""


class RequestTimeout(TransportError, TimeoutError):
    """No answer in time; the request may or may not have been served."""


class TooManyRequests(TransportError):
    """The limit of requests in flight is reached."""

    response_code = ResponseCode.SYSTEM_BUSY


# --- the store --------------------------------------------------------------------------------------------------------


class StoreError(RocketError):
    """An operation on the store's files failed."""


class RecordCorrupt(StoreError):
    """A stored record is damaged."""

    def __init__(self, phy_offset: int, reason: str) -> None:
        super().__init__(f"record at {phy_offset}: {reason}")
        self.phy_offset = phy_offset
        self.reason = reason


class DiskFull(StoreError):
    """No room for another record."""

    response_code = ResponseCode.SERVICE_NOT_AVAILABLE
    retriable = True


# --- seen by clients --------------------------------------------------------------------------------------------------


class BrokerError(RocketError):
    """A server answered with an error code."""

    def __init__(self, code: int, remark: str | None, *, address: str | None = None) -> None:
        self.code = code
        self.remark = remark or ""
        self.address = address
        self.response_code = code
        self.retriable = code in RETRIABLE_RESPONSE_CODES
        name = ResponseCode(code).name if code in ResponseCode._value2member_map_ else "unknown code"
        where = f" from {address}" if address else ""
        super().__init__(f"CODE: {code} ({name}){where}  DESC: {self.remark}")


class ClientError(RocketError):
    """A client cannot continue: no name server, no route, not running, options that exclude each other.

    `code` is one of Java's client codes (10001 to 10007), -1 for none.
    """

    def __init__(self, reason: str, *, code: int = -1) -> None:
        super().__init__(reason)
        self.code = code
