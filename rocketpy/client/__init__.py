"""The client: producers and consumers for any RocketMQ 4.x name server and broker, ours or the Java one.

Owns: connections to name servers and brokers, the route cache, heartbeats, consumer groups' queues and offsets.
Runs: inside the user's program, in one `trio.run`; `rocketpy.client.sync` brings its own thread for everybody else.
Entry points: `Producer`, `PushConsumer`, `PullConsumer` (async context managers).
Lifecycle: nothing happens in a constructor; entering the context starts the instance's tasks in a nursery that the
context owns, leaving it stops them, tells the brokers and closes the connections.

Decisions (which queue, who owns it, retry or not, may we pull) are plain functions and values in modules of their own;
modules that do I/O only carry them out:

    values and rules   options route allocation queue_selection latency_fault process_queue pull_rules subscription
    requests           api (one method per request code), name_servers, brokers
    duties             instance (routes, heartbeats), rebalance, pull_loop, concurrent, orderly, offset_store
    facades            producer, push_consumer, pull_consumer, sync

Works without the compiled core.
"""

from .allocation import Averagely, AveragelyByCircle, ByConfig, ByMachineRoom, ConsistentHash, NearbyRoom
from .messages import Message, ReceivedMessage, split_batches
from .options import (
    START_FIRST,
    START_LAST,
    ClientOptions,
    ConsumeMode,
    Credentials,
    ProducerOptions,
    PullOptions,
    PushOptions,
    StartFrom,
)
from .producer import Producer, SendHandle
from .pull_consumer import LitePullConsumer, PullConsumer
from .pull_rules import PullResult, PullStatus
from .push_consumer import PushConsumer
from .queue_selection import Fnv1aSelector, JavaHashSelector, RandomSelector
from .results import ConsumeResult, SendResult, SendStatus
from .subscription import Sql92

__all__ = [
    "START_FIRST",
    "START_LAST",
    "Averagely",
    "AveragelyByCircle",
    "ByConfig",
    "ByMachineRoom",
    "ClientOptions",
    "ConsistentHash",
    "ConsumeMode",
    "ConsumeResult",
    "Credentials",
    "Fnv1aSelector",
    "JavaHashSelector",
    "LitePullConsumer",
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
    "SendHandle",
    "SendResult",
    "SendStatus",
    "Sql92",
    "StartFrom",
    "split_batches",
]
