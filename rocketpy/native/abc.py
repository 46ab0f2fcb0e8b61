"""The pure functions that exist twice, in C and in Python, and the values that they take and give.

Texts are UTF-8 bytes as they lie on the wire or in the store. Numbers that do not fit their field are the caller's bug:
both twins may raise OverflowError or struct.error.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

import attrs

Buffer = bytes | bytearray | memoryview

MESSAGE_MAGIC_CODE = -626843481  # 0xDAA320A7
MESSAGE_MAGIC_CODE_V2 = -626843477  # 0xDAA320AB: 5.x only, read but never written
BLANK_MAGIC_CODE = -875286124  # 0xCBD43194
TOPIC_SIZE_MAX = 127
PROPERTIES_SIZE_MAX = 32767
FIELDS_MAX = 40  # extFields that the fast header reader takes
SERIALIZE_JSON = 0
SERIALIZE_ROCKETMQ = 1
LANGUAGE_UNKNOWN = 255


class Status(IntEnum):
    """`rp_status` of csrc/base/status.h. From 0 up: expected outcomes, given as values; below: faults, raised as
    errors."""

    OK = 0
    EMPTY = 1
    FULL = 2
    END_OF_FILE = 3
    INCOMPLETE = 4
    UNSUPPORTED = 5
    NOT_FOUND = 6
    STOPPED = 7
    INVALID = -1
    TOO_LARGE = -2
    CORRUPT = -3
    NO_SPACE = -4
    IO_ERROR = -5
    NO_MEMORY = -6


@attrs.frozen
class Host:
    """An IP endpoint as records carry it."""

    address: bytes  # 4 or 16, in network order
    port: int


@attrs.frozen(kw_only=True)
class Record:
    """What the record encoder needs. The IPv6 bits of `sys_flag` are set from the hosts."""

    topic: bytes
    body: bytes
    properties: bytes = b""
    properties_tail: bytes = b""  # joined with one 0x02 where both are there and the first does not end in one
    queue_id: int = 0
    flag: int = 0
    queue_offset: int = 0
    phy_offset: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    born_timestamp_ms: int = 0
    born_host: Host
    store_timestamp_ms: int = 0
    store_host: Host
    prepared_transaction_offset: int = 0


@attrs.frozen(kw_only=True)
class RecordView:
    """A record as it lies in the CommitLog, its three texts copied out."""

    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    phy_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: Host
    store_timestamp_ms: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: bytes
    properties: bytes


@attrs.frozen
class NoRecord:
    """Why there is none here, and the size that was read: END_OF_FILE (of the blank), EMPTY (zeros: nothing was
    written), INCOMPLETE (a record that goes past the bytes given, or fewer than 8 bytes)."""

    status: Status
    size: int


@attrs.frozen
class FrameCut:
    """A whole frame at the start of the bytes: head (8), header, body, together `size`."""

    size: int
    serialize_type: int
    header_size: int


@attrs.frozen
class FrameIncomplete:
    """More bytes are needed: `size` in all, or 0 while even the length is not there."""

    size: int


@attrs.frozen
class ParsedHeader:
    """A header with its texts unescaped. Fields that are null are absent; the last of several wins."""

    code: int
    version: int
    opaque: int
    flag: int
    language: int  # LanguageCode, LANGUAGE_UNKNOWN for any other
    remark: str | None
    ext_fields: dict[str, str]


@attrs.frozen(kw_only=True)
class SendReply:
    """Reply to a send that was stored. Its texts need no JSON escapes; an empty one is left out."""

    serialize_type: int
    opaque: int
    code: int
    version: int
    queue_id: int
    queue_offset: int
    message_ids: bytes  # offset message ids, comma-joined
    region: bytes
    trace_on: bool


@attrs.frozen(kw_only=True)
class PullReply:
    """Reply to a pull, whose body follows from elsewhere. `remark` needs no JSON escapes."""

    serialize_type: int
    opaque: int
    code: int
    version: int
    suggest_which_broker_id: int
    next_begin_offset: int
    min_offset: int
    max_offset: int
    body_size: int
    remark: bytes


class Native(Protocol):
    """What both twins offer. `_python` says what it means, `_c` must do the same to the byte."""

    @property
    def NAME(self) -> str:
        """`c` or `python`; for logs and reports."""

    def crc32(self, data: Buffer, crc: int = 0) -> int:
        """CRC-32 as zlib has it, all 32 bits; goes on from `crc`."""

    def record_size(self, record: Record) -> int:
        """Bytes of the encoded record; 0 if topic or properties are beyond the format's limits."""

    def record_encode(self, record: Record) -> bytes:
        """The record's bytes, its body's CRC computed.

        Raises:
            MessageInvalid: topic or properties are beyond the format's limits.
        """

    def record_decode(self, image: Buffer, *, check_crc: bool, phy_offset: int = 0) -> RecordView | NoRecord:
        """The record that starts `image`, which reaches to the end of the file. `phy_offset`: for errors only.

        Raises:
            RecordCorrupt: magic, an inner length or the CRC does not hold.
        """

    def frame_cut(self, data: Buffer, frame_size_max: int) -> FrameCut | FrameIncomplete:
        """Look at the first frame of `data`.

        Raises:
            FrameTooLarge: longer than `frame_size_max`, the 4 length bytes counted.
            HeaderInvalid: too short, of no known serialisation, or with a header longer than the frame.
        """

    def header_parse(self, serialize_type: int, header: Buffer) -> ParsedHeader | None:
        """Read a header. None: not in the form that clients write; a lenient parser must decide.

        Raises:
            HeaderInvalid: malformed.
        """

    def json_unescape(self, text: Buffer) -> bytes:
        """Undo JSON escapes.

        Raises:
            HeaderInvalid: an unknown or unfinished escape, or half a surrogate pair.
        """

    def parse_int32(self, text: Buffer) -> int:
        """Optional sign and ASCII digits, as Java's parseInt.

        Raises:
            HeaderInvalid: anything else, or out of range.
        """

    def parse_int64(self, text: Buffer) -> int:
        """As parse_int32, for 64 bits."""

    def send_reply_encode(self, reply: SendReply) -> bytes:
        """The whole frame."""

    def pull_reply_encode(self, reply: PullReply) -> bytes:
        """The frame's length, descriptor and header; the length counts the body that follows."""

    def string_hash(self, text: Buffer) -> int:
        """Java's String.hashCode; each malformed sequence counts as one U+FFFD."""

    def index_hash(self, key: Buffer) -> int:
        """The hash of `topic#key` in index files: the absolute value, 0 where there is none."""

    def property_find(self, properties: Buffer, name: bytes) -> bytes | None:
        """Value of a property; the last of several wins; an empty one is none."""

    def message_id(self, store_host: Host, phy_offset: int) -> str:
        """Offset message id: upper-case hex of address, port and offset."""
