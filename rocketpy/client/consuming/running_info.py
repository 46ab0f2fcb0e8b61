"""The state of a consumer for operators (mqadmin consumerStatus). Values only, except for stack dumps.

Source: RocketMQ 4.9 `DefaultMQPushConsumerImpl#consumerRunningInfo`.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Iterable, Mapping

import attrs

from rocketpy.codes import OUR_VERSION, version_name
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.bodies.client import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumeType,
    ProcessQueueInfo,
    SubscriptionData,
)
from rocketpy.remoting.bodies.client import ConsumeStatus as ConsumeStatusBody

from ..options import ConsumerOptions
from ..results import ConsumeAction
from .handler import Handled
from .offset_store import OffsetStore
from .process_queue import ProcessQueue
from .statistics import ConsumerStatistics

SECRET_OPTIONS = frozenset({"credentials"})


def build(
    *,
    options: ConsumerOptions,
    consume_type: ConsumeType,
    ordered: bool,
    started_ms: int,
    subscriptions: Iterable[SubscriptionData],
    queues: Mapping[MessageQueue, ProcessQueue],
    offsets: OffsetStore,
    statistics: ConsumerStatistics,
    with_stack: bool,
) -> ConsumerRunningInfo:
    """The whole account."""
    subscription_set = list(subscriptions)
    return ConsumerRunningInfo(
        properties=properties_of(options, consume_type, ordered, started_ms),
        subscription_set=subscription_set,
        mq_table={
            queue: process_queue_info(process_queue, offsets.in_memory(queue))
            for queue, process_queue in queues.items()
        },
        status_table={
            subscription.topic: status_body(statistics, subscription.topic) for subscription in subscription_set
        },
        jstack=stack_dump() if with_stack else None,
    )


def properties_of(
    options: ConsumerOptions, consume_type: ConsumeType, ordered: bool, started_ms: int
) -> dict[str, str]:
    """Settings as text, and the six entries by Java's names that admin tools read."""
    settings = {
        field.name: str(getattr(options, field.name))
        for field in attrs.fields(type(options))
        if field.name not in SECRET_OPTIONS
    }
    return settings | {
        "PROP_NAMESERVER_ADDR": options.name_servers,
        "PROP_CONSUME_TYPE": consume_type,
        "PROP_CONSUMEORDERLY": "true" if ordered else "false",
        "PROP_THREADPOOL_CORE_SIZE": str(getattr(options, "concurrency", 1)),
        "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
        "PROP_CLIENT_VERSION": version_name(OUR_VERSION),
    }


def process_queue_info(process_queue: ProcessQueue, commit_offset: int | None) -> ProcessQueueInfo:
    """One queue: the reference's "transaction" messages are those handed out to an ordered handler."""
    cached = process_queue.cached
    handed_out = process_queue.handed_out
    handed_out_offsets = [message.queue_offset for message in handed_out]
    return ProcessQueueInfo(
        commit_offset=-1 if commit_offset is None else commit_offset,
        cached_msg_min_offset=cached[0].queue_offset if cached else 0,
        cached_msg_max_offset=cached[-1].queue_offset if cached else 0,
        cached_msg_count=len(cached),
        cached_msg_size_in_mib=process_queue.cached_bytes >> 20,
        transaction_msg_min_offset=min(handed_out_offsets, default=0),
        transaction_msg_max_offset=max(handed_out_offsets, default=0),
        transaction_msg_count=len(handed_out),
        locked=process_queue.locked,
        try_unlock_times=process_queue.try_unlock_times,
        last_lock_timestamp_ms=process_queue.last_lock_ms,
        dropped=process_queue.dropped,
        last_pull_timestamp_ms=process_queue.last_pull_ms,
        last_consume_timestamp_ms=process_queue.last_consume_ms,
    )


def status_body(statistics: ConsumerStatistics, topic: str) -> ConsumeStatusBody:
    status = statistics.status(topic)
    return ConsumeStatusBody(
        pull_rt_ms=status.pull_rt,
        pull_tps=status.pull_tps,
        consume_rt_ms=status.consume_rt,
        consume_ok_tps=status.consume_ok_tps,
        consume_failed_tps=status.consume_failed_tps,
        consume_failed_msgs=status.consume_failed_msgs,
    )


def stack_dump() -> str:
    """The stacks of all threads of this process."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )


DIRECTLY = {
    ConsumeAction.SUCCESS: CMResult.CR_SUCCESS,
    ConsumeAction.RETRY: CMResult.CR_LATER,
    ConsumeAction.SUSPEND: CMResult.CR_LATER,
    ConsumeAction.COMMIT: CMResult.CR_COMMIT,
    ConsumeAction.ROLLBACK: CMResult.CR_ROLLBACK,
}


def directly_result(handled: Handled, *, ordered: bool) -> ConsumeMessageDirectlyResult:
    """The result of a message that was consumed at an operator's request."""
    return ConsumeMessageDirectlyResult(
        order=ordered,
        auto_commit=handled.result.auto_commit,
        consume_result=CMResult.CR_THROW_EXCEPTION if handled.error else DIRECTLY[handled.result.action],
        remark=None if handled.error is None else f"{type(handled.error).__name__}: {handled.error}",
        spent_time_ms=round(handled.spent_s * 1000),
    )
