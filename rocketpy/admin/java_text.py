"""Values as Java's mqadmin prints them: scripts in the field parse these forms.

Source: the `toString` forms of RocketMQ 4.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rocketpy.client.messages import ReceivedMessage
from rocketpy.client.results import SendResult
from rocketpy.codes import LanguageCode
from rocketpy.message.host import format_host
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.bodies.broker import ConsumeQueueData
from rocketpy.remoting.bodies.client import ConsumeMessageDirectlyResult, ProcessQueueInfo
from rocketpy.remoting.bodies.group import SubscriptionGroupConfig
from rocketpy.remoting.json_writer import dump_text

from .java_order import hash_order
from .output import stamp_text

RULE = "=" * 38  # between the parts of queryCq
GROUP_FIELDS = (
    "groupName",
    "consumeEnable",
    "consumeFromMinEnable",
    "consumeBroadcastEnable",
    "retryQueueNums",
    "retryMaxTimes",
    "brokerId",
    "whichBrokerWhenConsumeSlowly",
    "notifyConsumerIdsChangedEnable",
)


def plain(value: object) -> str:
    """`true`, `null`, or the text of a value."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def fields(pairs: Iterable[tuple[str, object]]) -> str:
    """`a=1, b=true`."""
    return ", ".join(f"{name}={plain(value)}" for name, value in pairs)


def pretty_json(value: object, indent: int = 0) -> str:
    """JSON as fastjson's pretty form writes it for people: with tabs, without members that are null.

    Members stand in the order given. Keys that are numbers are bare and stay on the line of the brace.
    """
    end, inner = "\n" + "\t" * indent, "\n" + "\t" * (indent + 1)
    if hasattr(value, "wire_members"):
        value = dict(value.wire_members())
    if isinstance(value, dict):
        shown = {key: member for key, member in value.items() if member is not None}
        if not shown:
            return "{}"
        members = (
            f"{'' if isinstance(key, int) else inner}{dump_text(key)}:{pretty_json(member, indent + 1)}"
            for key, member in shown.items()
        )
        return "{" + ",".join(members) + end + "}"
    if isinstance(value, list) and value and not isinstance(value[0], str | int):
        return "[" + ",".join(inner + pretty_json(member, indent + 1) for member in value) + end + "]"
    return dump_text(value)


def language_name(language: LanguageCode | None) -> str:
    """Return the name; null for a language that is not known. (JAVA is number 0: do not test for truth.)"""
    return "null" if language is None else language.name


def queue_text(queue: MessageQueue) -> str:
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def properties_text(properties: Mapping[str, str]) -> str:
    """`{TAGS=paid, KEYS=k1}`, in the order of Java's table."""
    return "{" + ", ".join(f"{name}={properties[name]}" for name in hash_order(properties)) + "}"


def message_text(message: ReceivedMessage) -> str:
    """A whole message in one line, its body as signed bytes."""
    body = ", ".join(str(byte - 256 if byte > 127 else byte) for byte in message.body)
    inner = (
        f"Message{{topic='{message.topic}', flag={message.flag}, properties={properties_text(message.properties)}, "
        f"body=[{body}], transactionId='null'}}"
    )
    outer = fields(
        (
            ("brokerName", message.queue.broker_name),
            ("queueId", message.queue.queue_id),
            ("storeSize", message.store_size),
            ("queueOffset", message.queue_offset),
            ("sysFlag", message.sys_flag),
            ("bornTimestamp", message.born_timestamp_ms),
            ("bornHost", f"/{format_host(message.born_host)}"),
            ("storeTimestamp", message.store_timestamp_ms),
            ("storeHost", f"/{format_host(message.store_host)}"),
            ("msgId", message.offset_msg_id),
            ("commitLogOffset", message.phy_offset),
            ("bodyCRC", message.body_crc),
            ("reconsumeTimes", message.reconsume_times),
            ("preparedTransactionOffset", message.prepared_transaction_offset),
            ("toString()", inner),
        )
    )
    return f"MessageExt [{outer}]"


def send_result_text(result: SendResult) -> str:
    return (
        f"SendResult [sendStatus={result.status.value}, msgId={result.msg_id}, offsetMsgId={result.offset_msg_id}, "
        f"messageQueue={queue_text(result.queue)}, queueOffset={result.queue_offset}]"
    )


def consume_result_text(result: ConsumeMessageDirectlyResult) -> str:
    shown = fields(
        (
            ("order", result.order),
            ("autoCommit", result.auto_commit),
            ("consumeResult", result.consume_result),
            ("remark", result.remark),
            ("spentTimeMills", result.spent_time_ms),
        )
    )
    return f"ConsumeMessageDirectlyResult [{shown}]"


def group_fields(config: SubscriptionGroupConfig) -> list[tuple[str, str]]:
    """Names and values of a group's settings."""
    members = dict(config.wire_members())
    return [(name, plain(members[name])) for name in GROUP_FIELDS]


def group_text(config: SubscriptionGroupConfig) -> str:
    return f"SubscriptionGroupConfig [{fields(group_fields(config))}]"


def unit_text(unit: ConsumeQueueData) -> str:
    """An entry of a consume queue."""
    return (
        f"ConsumeQueueData{{physicOffset={unit.physic_offset}, physicSize={unit.physic_size}, "
        f"tagsCode={unit.tags_code}, extendDataJson='{plain(unit.extend_data_json)}', "
        f"bitMap='{plain(unit.bit_map)}', eval={plain(unit.eval)}, msg='{plain(unit.msg)}'}}"
    )


def process_queue_text(state: ProcessQueueInfo) -> str:
    """The state of a queue at a consumer; times as digits, `yyyyMMddHHmmssSSS`."""
    shown = fields(
        (
            ("commitOffset", state.commit_offset),
            ("cachedMsgMinOffset", state.cached_msg_min_offset),
            ("cachedMsgMaxOffset", state.cached_msg_max_offset),
            ("cachedMsgCount", state.cached_msg_count),
            ("cachedMsgSizeInMiB", state.cached_msg_size_in_mib),
            ("transactionMsgMinOffset", state.transaction_msg_min_offset),
            ("transactionMsgMaxOffset", state.transaction_msg_max_offset),
            ("transactionMsgCount", state.transaction_msg_count),
            ("locked", state.locked),
            ("tryUnlockTimes", state.try_unlock_times),
            ("lastLockTimestamp", stamp_text(state.last_lock_timestamp_ms)),
            ("droped", state.dropped),
            ("lastPullTimestamp", stamp_text(state.last_pull_timestamp_ms)),
            ("lastConsumeTimestamp", stamp_text(state.last_consume_timestamp_ms)),
        )
    )
    return f"ProcessQueueInfo [{shown}]"
