"""Sink `rocketmq`: DataFrames and streams to topics, at least once.

A message is visible when its broker has acknowledged it. A task or a micro-batch that is repeated sends its messages
again; nothing can be taken back. SPARK_ID is the same in each repetition if the rows come in the same order.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from rocketpy.errors import ConfigError
from rocketpy.message.message_queue import MessageQueue

from .outgoing import RowReader, SinkOptions, check_schema
from .sending import SENDERS, Receipt
from .worker import Origin, prepare_worker, reason_first

logger = logging.getLogger(__name__)

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


class TaskReceipt(WriterCommitMessage):
    """The receipts of one task, by queue."""

    def __init__(self, receipts: dict[MessageQueue, Receipt]) -> None:
        self.receipts = receipts


class TaskWriter:
    """Writes the rows of a task; pickled on its way to executors.

    Args:
        run_id: of a batch query; a stream's tasks know their query and batch.
    """

    def __init__(self, options: SinkOptions, run_id: str) -> None:
        self.options = options
        self.run_id = run_id
        self.origin = Origin()

    @reason_first()
    def write(self, batches: Iterator[Any]) -> TaskReceipt:
        """Send all rows and wait until they are stored. Raises RowRefused, TransportError, BrokerError."""
        self.origin.check()
        prepare_worker()
        rows = RowReader(self.options, self._identity())
        sender = SENDERS.get(self.options.producer_group, self.options.client())
        transfer = sender.begin(self.options)
        for batch in batches:
            sender.add(transfer, list(rows.messages(batch)))
        return TaskReceipt(sender.finish(transfer))

    def _identity(self) -> str:
        context = TaskContext.get()
        if context is None:
            return f"{self.run_id}:0"
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        run = f"{query}:{batch}" if query and batch else self.run_id
        return f"{run}:{context.partitionId()}"


def make_task_writer(schema: Any, options: SinkOptions, *, overwrite: bool) -> TaskWriter:
    """Raises ConfigError for columns that cannot be sent, and for a mode other than append."""
    if overwrite:
        raise ConfigError('topics can only be appended to: use .mode("append") or .outputMode("append")')
    check_schema(schema, options)
    return TaskWriter(options, uuid.uuid4().hex)


def log_receipts(messages: Sequence[WriterCommitMessage | None], text: str) -> None:
    """Log for each queue what was stored, with messages of others perhaps in between.

    Args:
        text: takes a count, a queue, the first and the last offset.
    """
    total: dict[MessageQueue, Receipt] = {}
    for message in messages:
        for queue, receipt in message.receipts.items() if isinstance(message, TaskReceipt) else ():
            known = total.setdefault(queue, Receipt(0, receipt.first_offset, receipt.last_offset))
            known.add(receipt.first_offset, receipt.count)
            known.last_offset = max(known.last_offset, receipt.last_offset)
    for queue, receipt in sorted(total.items()):
        numbers = (receipt.count, queue, receipt.first_offset, receipt.last_offset)
        logger.info(text, *numbers)


class TopicWriter(DataSourceArrowWriter):
    """Of a batch query."""

    def __init__(self, tasks: TaskWriter) -> None:
        self.tasks = tasks

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self.tasks.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        log_receipts(messages, "batch query: stored %d messages in %s, offsets %d to %d")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        log_receipts(messages, "batch query failed; %d messages were already stored in %s, offsets %d to %d; they stay")


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Of a stream; made anew for each micro-batch."""

    def __init__(self, tasks: TaskWriter) -> None:
        self.tasks = tasks

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self.tasks.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        log_receipts(messages, f"micro-batch {batchId}: stored %d messages in %s, offsets %d to %d")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        stored = "%d messages were already stored in %s, offsets %d to %d"
        log_receipts(messages, f"micro-batch {batchId} failed; {stored}; they stay, and the next try stores them again")
