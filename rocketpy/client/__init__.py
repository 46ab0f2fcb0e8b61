"""The client: producers and consumers for any RocketMQ 4.x name server and broker, ours or the Java one.

Owns: connections to name servers and brokers, the route cache, heartbeats, consumer groups' queues and offsets.
Runs: in the user's loop, trio's or asyncio's, which aio finds; `rocketpy.client.sync` brings a thread with a loop.
Entry points: `Producer`, `TransactionProducer`, `PushConsumer`, `PullConsumer` (async context managers).
Lifecycle: nothing happens in a constructor; entering the context starts the instance's tasks in a nursery that the
context owns, leaving it stops them, tells the brokers and closes the connections.

Decisions (which queue, who owns it, retry or not, may we pull) are plain functions and values in modules of their own;
modules that do I/O only carry them out. The rooms, from the bottom up; each imports those above it in this list:

    values       security options messages results allocation hooks   what a user passes and gets
    cluster/     name servers, routes, brokers, heartbeats, one method per request code
    sending/     choose a queue, send, retry
    consuming/   group member, rebalance, pull loop, concurrent and ordered handlers, offsets
    facades      producer transaction_producer push_consumer pull_consumer sync
    typed/       values instead of bodies, policies for failed messages, handlers that work once

Works without the compiled core. A name is imported when it is first used: who sends does not load what consumers are
made of.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketpy.message.sys_flag import CompressionType
    from rocketpy.remoting.signature import Credentials

    from .allocation import Averagely, AveragelyByCircle, ByConfig, ByMachineRoom, ConsistentHash, NearbyRoom
    from .consuming.subscription import Sql92
    from .hooks import Delivery, Hook, Sending
    from .messages import Message, ReceivedMessage, Reply, split_batches
    from .options import (
        START_FIRST,
        START_LAST,
        ClientOptions,
        ConsumeMode,
        ProducerOptions,
        PullOptions,
        PushOptions,
        StartFrom,
    )
    from .producer import Producer
    from .pull_consumer import LitePullConsumer, PullConsumer
    from .push_consumer import PushConsumer
    from .results import ConsumeResult, PullResult, PullStatus, SendResult, SendStatus
    from .security import SecuritySettings, TlsOptions, read_credentials
    from .sending.handles import RequestHandle, SendHandle
    from .sending.queue_selection import Fnv1aSelector, JavaHashSelector, RandomSelector
    from .sending.sender import Member
    from .transaction_producer import LocalTransactionState, TransactionListener, TransactionProducer, TransactionResult

__all__ = [
    "START_FIRST",
    "START_LAST",
    "Averagely",
    "AveragelyByCircle",
    "ByConfig",
    "ByMachineRoom",
    "ClientOptions",
    "CompressionType",
    "ConsistentHash",
    "ConsumeMode",
    "ConsumeResult",
    "Credentials",
    "Delivery",
    "Fnv1aSelector",
    "Hook",
    "JavaHashSelector",
    "LitePullConsumer",
    "LocalTransactionState",
    "Member",
    "Message",
    "NearbyRoom",
    "Producer",
    "ProducerOptions",
    "PullConsumer",
    "PullOptions",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "PushOptions",
    "RandomSelector",
    "ReceivedMessage",
    "Reply",
    "RequestHandle",
    "SecuritySettings",
    "SendHandle",
    "SendResult",
    "SendStatus",
    "Sending",
    "Sql92",
    "StartFrom",
    "TlsOptions",
    "TransactionListener",
    "TransactionProducer",
    "TransactionResult",
    "read_credentials",
    "split_batches",
]

_NAMES = {  # as above, by module
    "rocketpy.message.sys_flag": "CompressionType",
    "rocketpy.remoting.signature": "Credentials",
    ".allocation": "Averagely AveragelyByCircle ByConfig ByMachineRoom ConsistentHash NearbyRoom",
    ".consuming.subscription": "Sql92",
    ".hooks": "Delivery Hook Sending",
    ".messages": "Message ReceivedMessage Reply split_batches",
    ".options": "START_FIRST START_LAST ClientOptions ConsumeMode ProducerOptions PullOptions PushOptions StartFrom",
    ".producer": "Producer",
    ".pull_consumer": "LitePullConsumer PullConsumer",
    ".push_consumer": "PushConsumer",
    ".results": "ConsumeResult PullResult PullStatus SendResult SendStatus",
    ".security": "SecuritySettings TlsOptions read_credentials",
    ".sending.handles": "RequestHandle SendHandle",
    ".sending.queue_selection": "Fnv1aSelector JavaHashSelector RandomSelector",
    ".sending.sender": "Member",
    ".transaction_producer": "LocalTransactionState TransactionListener TransactionProducer TransactionResult",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULES[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return __all__
