"""Handlers that do their work once for each message, however often it is delivered.

    seen = SqliteSeenIds("billing.db")

    @idempotent(seen)
    async def bill(message: ReceivedMessage) -> None: ...

    @once(seen)                                  # the effect is in the same database: exactly once
    def book(database: sqlite3.Connection, message: ReceivedMessage) -> None: ...

`idempotent` looks before the handler, and marks the id after it. A process that dies between the handler's effect and
the mark runs the handler again: keep the effect safe to repeat, or use `once`, whose mark is committed or rolled back
together with the effect. Two members of a group that have one message at the same time, as after a rebalance, may both
run an `idempotent` handler; with `once` the second one waits, and then finds the mark.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from rocketpy import aio

from ..consuming.handler import is_async
from ..messages import ReceivedMessage
from ..results import ConsumeAction, ConsumeResult

H = TypeVar("H", bound=Callable[..., Any])
D = TypeVar("D", covariant=True)
P = ParamSpec("P")
R = TypeVar("R")
Key = Callable[[ReceivedMessage], str]


class SeenIds(Protocol):
    """A store of the ids whose handlers have ended. Plain functions; any thread calls them, several at once.

    An error that they raise fails the handler: the message is tried again.
    """

    def has(self, key: str, /) -> bool:
        """Return True if `add` was called with this id."""

    def add(self, key: str, /) -> None:
        """Keep the id. Adding it again changes nothing."""


class TransactionalIds(Protocol[D]):
    """A store of ids in the database of the handler's effects."""

    def transaction(self, key: str, /) -> AbstractContextManager[D | None]:
        """Begin a transaction that keeps the id, and exclude others with this id; None: it is kept already.

        Leaving the block commits; an exception rolls back.
        """


def message_id(message: ReceivedMessage) -> str:
    """The producer's id: a retry and a repeated attempt of one send have the same."""
    return message.msg_id


def idempotent(store: SeenIds, key: Key = message_id) -> Callable[[H], H]:
    """Make a handler skip messages whose id is in `store`. Its last argument is the message.

    Async handlers wait for the store in a thread. A handler that raises, or returns anything but success, leaves no
    mark.

    Args:
        key: what makes two messages the same; a producer that sends the same order twice gives the order's number.
    """

    def decorate(function: H) -> H:
        async def marked(awaitable: Awaitable[Any], name: str) -> Any:
            result = await awaitable
            if _is_done(result):
                await aio.in_thread(store.add, name)
            return result

        @functools.wraps(function)
        async def consume_async(*arguments: Any) -> Any:
            name = key(arguments[-1])
            if await aio.in_thread(store.has, name):
                return None
            return await marked(function(*arguments), name)

        @functools.wraps(function)
        def consume(*arguments: Any) -> Any:
            name = key(arguments[-1])
            if store.has(name):
                return None
            result = function(*arguments)
            if inspect.isawaitable(result):
                return marked(result, name)
            if _is_done(result):
                store.add(name)
            return result

        return consume_async if is_async(function) else consume  # type: ignore[return-value]  # takes what H takes

    return decorate


def once(
    store: TransactionalIds[D], key: Key = message_id
) -> Callable[[Callable[Concatenate[D, P], R]], Callable[P, R | ConsumeResult | None]]:
    """Run a plain handler in a transaction of `store`, which also keeps the message's id.

    The handler gets what the transaction yields, a connection, before its other arguments. A crash, an error, or a
    result other than success leaves neither the effect nor the mark.

    Raises:
        TypeError: the handler is async: its transaction would stay open while others run.
    """

    def decorate(function: Callable[Concatenate[D, P], R]) -> Callable[P, R | ConsumeResult | None]:
        if is_async(function):
            raise TypeError(f"once() takes a plain function, which runs in a thread, and {function} is async")

        def consume(*arguments: P.args, **named: P.kwargs) -> R | ConsumeResult | None:
            message: Any = arguments[-1]
            try:
                with store.transaction(key(message)) as database:
                    if database is None:
                        return None
                    result = function(database, *arguments, **named)
                    if inspect.isawaitable(result):
                        raise TypeError(f"once() takes a plain function, and {function} returned {result}")
                    if not _is_done(result):
                        raise _Refused(result)
                    return result
            except _Refused as refused:
                return refused.result

        return consume

    return decorate


class _Refused(Exception):
    """Rolls a transaction back: its handler asked for a retry."""

    def __init__(self, result: Any) -> None:
        super().__init__(result)
        self.result: ConsumeResult = result


def _is_done(result: object) -> bool:
    return result is None or (isinstance(result, ConsumeResult) and result.action is ConsumeAction.SUCCESS)
