"""Settings of topics across brokers: reads before it writes, keeps the order configuration in step.

Java's updateTopic resets what is not given; here it stays as it is, unless `replace` asks for Java's way.
"""

from __future__ import annotations

import attrs

from rocketpy.remoting.bodies.topic import TopicConfig

from .admin import ORDER_TOPIC_CONFIG, Admin

UNIT, UNIT_SUB = 1, 2  # topic system flags


@attrs.frozen
class TopicChange:
    """A change of a topic's settings; None leaves a setting alone."""

    read_queue_nums: int | None = None
    write_queue_nums: int | None = None
    perm: int | None = None
    order: bool | None = None
    unit: bool | None = None
    has_unit_sub: bool | None = None

    def applied_to(self, topic: str, present: TopicConfig | None) -> TopicConfig:
        """The settings after the change; of a new topic 8 queues, read and write."""
        base = present or TopicConfig(topic_name=topic, read_queue_nums=8, write_queue_nums=8, perm=6)
        flag = base.topic_sys_flag
        for wanted, bit in ((self.unit, UNIT), (self.has_unit_sub, UNIT_SUB)):
            if wanted is not None:
                flag = flag | bit if wanted else flag & ~bit
        return TopicConfig(
            topic_name=topic,
            read_queue_nums=base.read_queue_nums if self.read_queue_nums is None else self.read_queue_nums,
            write_queue_nums=base.write_queue_nums if self.write_queue_nums is None else self.write_queue_nums,
            perm=base.perm if self.perm is None else self.perm,
            order=base.order if self.order is None else self.order,
            topic_filter_type=base.topic_filter_type,
            topic_sys_flag=flag,
        )


async def change_topic(
    admin: Admin, address: str, topic: str, change: TopicChange, *, replace: bool = False
) -> TopicConfig:
    """Apply a change on one master. Returns: the settings it has now."""
    present = None if replace else (await admin.topic_configs(address)).get(topic)
    config = change.applied_to(topic, present)
    await admin.create_topic(address, config)
    return config


def merge_order_conf(present: str | None, broker_name: str, queue_nums: int) -> str:
    """The order configuration with one broker's entry set: `broker-a:8;broker-b:8`."""
    entries = dict(item.split(":", 1) for item in (present or "").split(";") if ":" in item)
    entries[broker_name] = str(queue_nums)
    return ";".join(f"{name}:{nums}" for name, nums in sorted(entries.items()))


async def put_order_conf(admin: Admin, topic: str, queue_nums: dict[str, int], *, merge: bool) -> str:
    """Write the queue numbers of brokers to every name server. Returns: the value written."""
    value = await admin.kv(ORDER_TOPIC_CONFIG, topic) if merge else None
    for broker_name, nums in queue_nums.items():
        value = merge_order_conf(value, broker_name, nums)
    await admin.put_kv(ORDER_TOPIC_CONFIG, topic, value or "")
    return value or ""


def config_text(config: TopicConfig) -> str:
    """The settings as Java prints them."""
    letters = "".join(letter if config.perm & bit else "-" for letter, bit in (("R", 4), ("W", 2), ("X", 1)))
    order = "true" if config.order else "false"
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={letters}, topicFilterType={config.topic_filter_type.value}, "
        f"topicSysFlag={config.topic_sys_flag}, order={order}]"
    )
