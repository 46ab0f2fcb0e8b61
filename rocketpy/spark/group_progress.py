"""Reports the progress of streaming queries to a consumer group, for tools that show the lag of groups.

Spark tells a source of a finished batch when the next one begins, and never of the last one. It tells listeners of
every batch. The query itself never goes by these offsets.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from rocketpy.errors import RocketError

from .cluster import CLUSTERS
from .connection import ConnectionOptions
from .offsets import Document
from .options import parse_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)


class GroupProgress(StreamingQueryListener):
    """Writes where each finished batch ended to `group`. A report that fails is logged; the query goes on.

    Args:
        query_name: of the query (`queryName`); None: of all queries of the session that read this source.
        options: nameServer and credentials, as of the source.
    """

    def __init__(self, spark: SparkSession, group: str, *, query_name: str | None = None, **options: Any) -> None:
        super().__init__()
        self._group = group
        self._query_name = query_name
        self._client = parse_options(
            ConnectionOptions, {key: str(value) for key, value in options.items()}
        ).client_options()
        spark.streams.addListener(self)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        if self._query_name is not None and event.progress.name != self._query_name:
            return
        for source in event.progress.sources:
            if document := read_document(source.endOffset):
                try:
                    CLUSTERS.get(self._client).queues({queue.topic for queue in document.ends})
                    CLUSTERS.get(self._client).commit(self._group, document.ends)
                except RocketError as error:
                    logger.warning("cannot report progress to group %s: %s", self._group, error)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        logger.debug("query %s: its progress is reported to group %s", event.id, self._group)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        logger.debug("query %s is idle", event.id)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        logger.debug("query %s has ended", event.id)


def read_document(text: str | None) -> Document | None:
    """The offsets of a source's progress; None if they are another source's."""
    try:
        found = json.loads(text or "null")
        return Document.decode(found) if isinstance(found, dict) and "q" in found else None
    except (ValueError, RocketError):
        return None
