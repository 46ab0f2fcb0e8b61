"""Sink `rocketmq`: DataFrames and streams to topics, at least once.

A message is stored when its broker has acknowledged it, and readers see it a moment later; a batch write ends when they
do. A task or a micro-batch that is repeated sends its messages again; nothing can be taken back. SPARK_ID is the same
in each repetition if the rows come in the same order.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from rocketpy.errors import ConfigError, RocketError
from rocketpy.message.message_queue import MessageQueue

from .cluster import CLUSTERS
from .connection import MAX_WAIT_S
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
        run_id: of a batch write; a stream's tasks know their query and batch.
    """

    def __init__(self, options: SinkOptions, run_id: str) -> None:
        self.options = options
        self.run_id = run_id
        self.origin = Origin()

    @reason_first()
    def write(self, batches: Iterator[Any]) -> TaskReceipt:
        """Send all rows and wait until they are stored. Raises as `Transfer.add`."""
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


def total_receipts(messages: Sequence[WriterCommitMessage | None]) -> dict[MessageQueue, Receipt]:
    """Return the receipts of all tasks together, by queue."""
    total: dict[MessageQueue, Receipt] = {}
    for message in messages:
        for queue, receipt in message.receipts.items() if isinstance(message, TaskReceipt) else ():
            total.setdefault(queue, Receipt()).join(receipt)
    return total


def log_receipts(total: dict[MessageQueue, Receipt], text: str, after: str = "") -> None:
    """Log for each queue what was stored, with messages of others perhaps in between.

    Args:
        text: takes a count and a queue.
        after: ends the line.
    """
    for queue, receipt in sorted(total.items()):
        logger.info(f"{text}%s{after}", receipt.count, queue, receipt.span())


def wait_for_readers(options: SinkOptions, total: dict[MessageQueue, Receipt]) -> None:
    """Wait until readers see what was stored: a query that follows must find all of it. It is stored in any case, so
    nothing is raised."""
    ends = {queue: receipt.last_offset + 1 for queue, receipt in total.items() if receipt.count > receipt.delayed}
    if not ends:
        return
    try:
        behind = CLUSTERS.get(options.client_options()).wait_for(ends, MAX_WAIT_S)
    except RocketError as error:
        logger.warning("batch write: all messages are stored; whether readers see them is not known: %s", error)
        return
    for queue, at in sorted(behind.items()):
        logger.warning("batch write: %s is stored up to %d, and readers see it up to %d", queue, ends[queue], at)


class TopicWriter(DataSourceArrowWriter):
    """Of a batch write."""

    def __init__(self, tasks: TaskWriter) -> None:
        self.tasks = tasks

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self.tasks.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        total = total_receipts(messages)
        log_receipts(total, "batch write: stored %d messages in %s")
        wait_for_readers(self.tasks.options, total)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        stored = "batch write failed; %d messages were already stored in %s"
        log_receipts(total_receipts(messages), stored, "; they stay")


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Of a stream; made anew for each micro-batch."""

    def __init__(self, tasks: TaskWriter) -> None:
        self.tasks = tasks

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self.tasks.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        log_receipts(total_receipts(messages), f"micro-batch {batchId}: stored %d messages in %s")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        stored = f"micro-batch {batchId} failed; %d messages were already stored in %s"
        log_receipts(total_receipts(messages), stored, "; they stay, and the next try stores them again")
