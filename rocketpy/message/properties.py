"""The property string of a message: ``name 0x01 value 0x02 name 0x01 value ...``, and the names that mean something.

A trailing 0x02 is written by some senders and not by others; both are read. A piece without 0x01, with an empty name or
an empty value does not count; of several values for one name the last wins. Order carries no meaning.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketpy.errors import MessageInvalid

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"
PROPERTIES_SIZE_MAX = 32_767  # bytes: the length field is a signed short

KEYS = "KEYS"
KEY_SEPARATOR = " "
TAGS = "TAGS"
WAIT = "WAIT"
DELAY = "DELAY"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QID = "REAL_QID"
TRAN_MSG = "TRAN_MSG"
PGROUP = "PGROUP"
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
BUYER_ID = "BUYER_ID"
TRANSFER_FLAG = "TRANSFER_FLAG"
CORRECTION_FLAG = "CORRECTION_FLAG"
MQ2_FLAG = "MQ2_FLAG"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
MSG_REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
UNIQ_KEY = "UNIQ_KEY"
CONSUME_START_TIME = "CONSUME_START_TIME"
TRAN_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
TRAN_FIRST_STORED_MS = "TRAN_FIRST_STORED_MS"  # only rocketpy's: of a half message that was stored again
CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
INSTANCE_ID = "INSTANCE_ID"
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
ARRIVE_TIME = "ARRIVE_TIME"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
MSG_TYPE = "MSG_TYPE"
MSG_TYPE_REPLY = "reply"
CLUSTER = "CLUSTER"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
TRANSACTION_ID = "__transactionId__"
SHARDING_KEY = "__SHARDINGKEY"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
START_DELIVER_TIME = "__STARTDELIVERTIME"  # of ONS clients
TIMER_OUT_MS = "TIMER_OUT_MS"  # of a stored timer: its time; of a delivered one: the time it had
TIMER_PROPERTIES = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS, START_DELIVER_TIME)
"""Each makes a message a timer; in the order of precedence."""
TIMER_CANCEL = "TIMER_DEL_UNIQKEY"  # this message cancels the timer that has this UNIQ_KEY; it is not delivered itself
TIMER_MOVE = "TIMER_MOVE_UNIQKEY"  # the same for a message that moves the timer to the time that it brings

SYSTEM_PROPERTIES = frozenset(
    {
        KEYS,
        TAGS,
        WAIT,
        DELAY,
        RETRY_TOPIC,
        REAL_TOPIC,
        REAL_QID,
        TRAN_MSG,
        PGROUP,
        MIN_OFFSET,
        MAX_OFFSET,
        BUYER_ID,
        TRANSFER_FLAG,
        CORRECTION_FLAG,
        MQ2_FLAG,
        ORIGIN_MESSAGE_ID,
        RECONSUME_TIME,
        MAX_RECONSUME_TIMES,
        MSG_REGION,
        TRACE_ON,
        UNIQ_KEY,
        CONSUME_START_TIME,
        TRAN_PREPARED_QUEUE_OFFSET,
        TRANSACTION_CHECK_TIMES,
        TRAN_FIRST_STORED_MS,
        CHECK_IMMUNITY_TIME_IN_SECONDS,
        INSTANCE_ID,
        CORRELATION_ID,
        REPLY_TO_CLIENT,
        TTL,
        ARRIVE_TIME,
        PUSH_REPLY_TIME,
        MSG_TYPE,
        CLUSTER,
        INNER_MULTI_DISPATCH,
        INNER_MULTI_QUEUE_OFFSET,
        TRANSACTION_ID,
        TIMER_DELAY_SEC,
        TIMER_DELAY_MS,
        TIMER_DELIVER_MS,
        TIMER_OUT_MS,
        TIMER_CANCEL,
        TIMER_MOVE,
    }
)
"""Names that users may not put into their messages."""


def encode_properties(properties: Mapping[str, str]) -> str:
    """The property string, without a trailing separator.

    Raises:
        MessageInvalid: a name is empty, or a name or value holds a separator.
    """
    text = PROPERTY_SEPARATOR.join(map(NAME_VALUE_SEPARATOR.join, properties.items()))
    count = len(properties)
    if "" in properties:
        raise MessageInvalid("a property without a name")
    if text.count(NAME_VALUE_SEPARATOR) != count or text.count(PROPERTY_SEPARATOR) != max(0, count - 1):
        separators = {NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR}
        name = next(name for name, value in properties.items() if not separators.isdisjoint(name + value))
        raise MessageInvalid(f"property {name!r} holds one of the separators 0x01, 0x02")
    return text


def decode_properties(text: str) -> dict[str, str]:
    """All properties of a string; what is malformed does not count."""
    properties = {}
    for piece in text.split(PROPERTY_SEPARATOR):
        name, _, value = piece.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties


def find_property(properties: bytes, name: bytes) -> bytes | None:
    """Value of one property in the encoded string, without decoding the rest."""
    found = None
    for piece in properties.split(b"\x02"):
        piece_name, _, value = piece.partition(b"\x01")
        if value and piece_name == name and name:
            found = value
    return found


def join_properties(first: bytes, second: bytes) -> bytes:
    """Two property strings as one; a separator stands between them only where it is needed."""
    if not first or not second or first.endswith(b"\x02"):
        return first + second
    return first + b"\x02" + second


def without_property(properties: bytes, name: bytes) -> bytes:
    """The string without one property; all other bytes stay as they are."""
    prefix = name + b"\x01"
    return b"\x02".join(piece for piece in properties.split(b"\x02") if not piece.startswith(prefix))
