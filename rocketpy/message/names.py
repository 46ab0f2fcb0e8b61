"""Which names topics and groups may have, and the names that the system reserves or derives."""

from __future__ import annotations

import re

from rocketpy.errors import MessageInvalid

TOPIC_LENGTH_MAX = 127  # the record has one signed byte for it
GROUP_LENGTH_MAX = 255  # what clients accept; beyond 120 a group has no storable retry topic
TEXT_LENGTH_MAX = 255  # of client ids, and of names of brokers and clusters
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII)

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
RETRY_LENGTH_MAX = GROUP_LENGTH_MAX + len(RETRY_PREFIX)  # of any topic that a Java broker may have
REPLY_TOPIC_SUFFIX = "_REPLY_TOPIC"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"

AUTO_CREATE_TOPIC_KEY_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC = "BenchmarkTest"
TRANS_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"
TIMER_TOPIC = "rmq_sys_wheel_timer"

TRANS_GROUP = "CID_RMQ_SYS_TRANS"  # its offsets are the progress of transaction checks
CLIENT_INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
DEFAULT_PRODUCER_GROUP = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER_GROUP = "DEFAULT_CONSUMER"
TOOLS_CONSUMER_GROUP = "TOOLS_CONSUMER"
FILTERSRV_CONSUMER_GROUP = "FILTERSRV_CONSUMER"
SELF_TEST_CONSUMER_GROUP = "SELF_TEST_C_GROUP"
ONS_HTTP_PROXY_GROUP = "CID_ONS-HTTP-PROXY"
CID_ONSAPI_PULL_GROUP = "CID_ONSAPI_PULL"
CID_ONSAPI_PERMISSION_GROUP = "CID_ONSAPI_PERMISSION"
CID_ONSAPI_OWNER_GROUP = "CID_ONSAPI_OWNER"

SYSTEM_TOPICS = frozenset(
    {
        AUTO_CREATE_TOPIC_KEY_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        TRANS_HALF_TOPIC,
        TRACE_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        TIMER_TOPIC,
        DLQ_PREFIX + TIMER_TOPIC,
    }
)
"""An admin can neither create nor delete them. A broker adds its cluster's and its own name, and the reply topic."""

NOT_ALLOWED_SEND_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        TIMER_TOPIC,
    }
)
"""A client's send to one of these is refused."""

PREDEFINED_GROUPS = (
    TOOLS_CONSUMER_GROUP,
    FILTERSRV_CONSUMER_GROUP,
    SELF_TEST_CONSUMER_GROUP,
    ONS_HTTP_PROXY_GROUP,
    CID_ONSAPI_PULL_GROUP,
    CID_ONSAPI_PERMISSION_GROUP,
    CID_ONSAPI_OWNER_GROUP,
)
"""Groups in every broker's table from the start."""

"""Default of messageDelayLevel: levels 1 to 18."""


def topic_fault(topic: str) -> str | None:
    """Why `topic` is not a legal topic name, or None if it is."""
    if not topic.strip():
        return "The specified topic is blank."
    if _LEGAL.fullmatch(topic) is None:
        shown = topic[:TOPIC_LENGTH_MAX]
        return f"The specified topic[{shown}] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(topic) > TOPIC_LENGTH_MAX:
        return f"The specified topic is longer than topic max length {TOPIC_LENGTH_MAX}."
    return None


def known_topic_fault(topic: str) -> str | None:
    """As `topic_fault`, for an existing topic that is referred to. The retry topic of a group of 121 to 255 characters
    is accepted, although no record can hold it."""
    prefix = next((prefix for prefix in (RETRY_PREFIX, DLQ_PREFIX) if topic.startswith(prefix)), None)
    return topic_fault(topic) if prefix is None else group_fault(topic[len(prefix) :])


def group_fault(group: str) -> str | None:
    """Why `group` is not a legal group name, or None if it is."""
    if not group.strip():
        return "the specified group is blank"
    if len(group) > GROUP_LENGTH_MAX:
        return f"the specified group is longer than group max length {GROUP_LENGTH_MAX}."
    if _LEGAL.fullmatch(group) is None:
        return f"the specified group[{group}] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    return None


def text_fault(what: str, text: str, length_max: int = TEXT_LENGTH_MAX) -> str | None:
    """Why `text` is no client id or name of a broker, cluster or address, or None. Users choose these freely: they may
    hold any character that can be shown."""
    if not text.strip():
        return f"the {what} is blank"
    if len(text) > length_max:
        return f"the {what} has {len(text)} characters, at most {length_max} are allowed"
    if _CONTROL.search(text):
        return f"the {what} {text.encode('unicode_escape').decode()} holds control characters"
    return None


def check_group(group: str) -> None:
    """Raises MessageInvalid if `group` is not legal."""
    if fault := group_fault(group):
        raise MessageInvalid(fault)


def with_namespace(name: str, namespace: str) -> str:
    """Return a topic or group as brokers know it: `NAMESPACE%name`, `%RETRY%NAMESPACE%group`. Names of the system have
    no namespace; neither is one put before itself.

    Source: RocketMQ 4.9 `NamespaceUtil#wrapNamespace`.
    """
    prefix, rest = _split(name)
    is_of_system = rest in SYSTEM_TOPICS or rest.startswith((SYSTEM_TOPIC_PREFIX, SYSTEM_GROUP_PREFIX))
    if not namespace or is_of_system or rest.startswith(f"{namespace}%"):
        return name
    return f"{prefix}{namespace}%{rest}"


def without_namespace(name: str, namespace: str) -> str:
    """Return a topic or group as its user knows it. Source: RocketMQ 4.9 `NamespaceUtil#withoutNamespace`."""
    prefix, rest = _split(name)
    return prefix + rest.removeprefix(f"{namespace}%") if namespace else name


def _split(name: str) -> tuple[str, str]:
    prefix = next((prefix for prefix in (RETRY_PREFIX, DLQ_PREFIX) if name.startswith(prefix)), "")
    return prefix, name[len(prefix) :]


def is_retry_topic(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


def is_dlq_topic(topic: str) -> bool:
    return topic.startswith(DLQ_PREFIX)


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    return DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    return cluster + REPLY_TOPIC_SUFFIX
