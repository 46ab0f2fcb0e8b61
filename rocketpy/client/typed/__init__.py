"""Typed topics, policies for failed messages, and handlers that work once.

Owns: nothing of the wire; it wraps producers, handlers and options of `rocketpy.client`.
Runs: in the user's loop; plain functions, and stores of ids, in threads. `typed.sync` is for programs without a loop.
Entry points: `TypedTopic`, `TypedProducer`, `TypedConsumer`, `RetryPolicy`, `idempotent`, `once`.

    serializers    JSON, attrs, pydantic, protobuf
    retry          RetryPolicy: attempts, delays, dead letters
    topics         TypedTopic, TypedProducer, TypedConsumer
    idempotent     handlers that skip what they have seen
    sqlite_ids     the ids that they have seen, in SQLite
    sync           the blocking clients
"""

from .idempotent import SeenIds, TransactionalIds, idempotent, once
from .retry import BodyUndecodable, DeadLetterTopic, RetryPolicy, Undecodable
from .serializers import JSON, AttrsSerializer, JsonSerializer, ProtobufSerializer, PydanticSerializer, Serializer
from .sqlite_ids import SqliteSeenIds
from .topics import TypedConsumer, TypedProducer, TypedTopic

__all__ = [
    "JSON",
    "AttrsSerializer",
    "BodyUndecodable",
    "DeadLetterTopic",
    "JsonSerializer",
    "ProtobufSerializer",
    "PydanticSerializer",
    "RetryPolicy",
    "SeenIds",
    "Serializer",
    "SqliteSeenIds",
    "TransactionalIds",
    "TypedConsumer",
    "TypedProducer",
    "TypedTopic",
    "Undecodable",
    "idempotent",
    "once",
]
