"""Request-reply: the requests of a producer that wait for a reply, matched by their correlation id.

A request is an ordinary message with three more properties. A consumer that handles it answers with
`received.reply(body)`, sent by a producer of its own. The broker pushes it to the connection of REPLY_TO_CLIENT (326).

Source: RocketMQ 4.9 `RequestFutureHolder`, `DefaultMQProducerImpl#request`.
"""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import attrs

from rocketpy import aio
from rocketpy.message import properties as names
from rocketpy.message.names import reply_topic

from ..cluster.instance import ClientInstance
from ..messages import ReceivedMessage

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class PendingRequest:
    """One request: the properties by which its reply is found, and the reply."""

    correlation_id: str
    reply: ReceivedMessage | None = None
    arrived: aio.Event = attrs.field(factory=aio.Event)

    def properties(self, client_id: str, timeout_s: float) -> Mapping[str, str]:
        return {
            names.CORRELATION_ID: self.correlation_id,
            names.REPLY_TO_CLIENT: client_id,
            names.TTL: str(max(1, round(timeout_s * 1000))),
        }


@attrs.define(eq=False)
class PendingRequests:
    """The pending requests of one producer; as many as its callers have under way."""

    rng: random.Random
    _pending: dict[str, PendingRequest] = attrs.field(factory=dict)

    def __len__(self) -> int:
        return len(self._pending)

    def new(self) -> PendingRequest:
        """A request with an id of its own."""
        return PendingRequest(str(uuid.UUID(int=self.rng.getrandbits(128), version=4)))

    @contextmanager
    def waiting(self, request: PendingRequest) -> Iterator[None]:
        """A block in which the reply may arrive; after it a reply is dropped."""
        self._pending[request.correlation_id] = request
        try:
            yield
        finally:
            del self._pending[request.correlation_id]

    def reply_arrived(self, reply: ReceivedMessage) -> None:
        """A broker has pushed a reply. One that comes too late is logged and dropped."""
        correlation_id = reply.properties.get(names.CORRELATION_ID, "")
        request = self._pending.get(correlation_id)
        if request is None:
            logger.info("dropped a reply to request %s: it is not waited for (any more)", correlation_id[:64])
            return
        request.reply = reply
        request.arrived.set()


async def introduce(instance: ClientInstance, topic: str) -> None:
    """See that every broker that may get the reply knows this client: those of the topic, and those of its cluster's
    reply topic. Brokers that answered a heartbeat before are not asked again."""
    route = instance.routes.get(topic)
    for cluster in sorted({data.cluster for data in route.broker_datas} if route is not None else ()):
        replies = reply_topic(cluster)
        if replies not in instance.publish_topics and await instance.update_route(replies):
            instance.begin_publishing(replies)  # refreshed with the others
    if not set(instance.heartbeat_targets()) <= instance.broker_versions.keys():
        await instance.heartbeat()
