"""etcd's JSON gateway over HTTP, as far as it is needed. Every wait and every answer has a bound.

Bytes are base64, 64-bit numbers are texts, and answers leave out false, 0 and empty values. A request that may be
repeated goes to one member and, after a moment without an answer, to all others; the first answer counts. When etcd
loses its leader, that renews a lease a second sooner than asking one after the other. A transaction goes to one
member, because of a second one nobody could tell which was refused.

Source: etcd 3.4, `rpc.proto` as its gateway has it; docs/adr/0161 has observations of 3.4.23.
"""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
import httpcore
import trio

from rocketpy.errors import RocketError
from rocketpy.message.numbers import long_or

ANSWER_MAX = 4 * 1024 * 1024  # bytes
TIMEOUT_S = 1.0
KEEP_S = 5.0  # a connection without requests
HEDGE_S = 0.15  # after which a request that may be repeated goes to the other members, too
# gRPC's codes of errors after which nothing was written: invalid argument, not found, permission denied, failed
# precondition, unauthenticated. After others (unavailable, deadline exceeded) a transaction may have been applied.
CERTAIN_CODES = frozenset({3, 5, 7, 9, 16})
INVALID_ARGUMENT, NOT_FOUND, UNAUTHENTICATED = 3, 5, 16
# With INVALID_ARGUMENT: users or roles were changed after a JWT was issued; authentication was switched on after it was
# found to be off.
OLD_TOKEN_TEXTS = ("revision of auth store is old", "user name is empty")
LOG_IN_PATH = "auth/authenticate"
LOG_IN_TIMEOUT_S = 5.0  # it takes etcd a tenth of a second of a processor that may be busy
BACK_OFF_S, BACK_OFF_MAX_S = 0.25, 5.0  # after the first failure to log in; it doubles
OPEN_PATHS = frozenset({"lease/grant", "lease/keepalive", "maintenance/status"})  # served without a token
COMPACTED_TEXT = "required revision has been compacted"  # the answer to a compaction that was done before
UNSENT = (httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.PoolTimeout)
FAILURES = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException)


class EtcdError(RocketError):
    """etcd has refused a request: nothing was written."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"etcd refuses the request: {text}")
        self.code = code
        is_old = code == INVALID_ARGUMENT and any(known in text for known in OLD_TOKEN_TEXTS)
        self.wants_log_in = code == UNAUTHENTICATED or is_old  # with a new token it may be granted


class EtcdUnavailable(RocketError):
    """No answer of use. Unless `unsent`, what was asked for may have been done, or be done later."""

    retriable = True

    def __init__(self, text: str, *, unsent: bool = False) -> None:
        super().__init__(text)
        self.unsent = unsent


@attrs.frozen(kw_only=True)
class Access:
    """The addresses and credentials with which to reach etcd. `addresses` are URLs of its members' client ports."""

    addresses: tuple[str, ...]
    user: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    timeout_s: float = TIMEOUT_S


@attrs.frozen(kw_only=True)
class EtcdStatus:
    """The state of an etcd cluster, as one of its members has it."""

    revision: int = 0
    db_bytes: int = 0  # of this member's database
    alarms: str = ""  # "NOSPACE", "CORRUPT", or both; empty: none


class _Body:
    """The bytes of a request. httpcore's own is a generator, and stays open when a request is cancelled."""

    def __init__(self, content: bytes) -> None:
        self._rest = [content]

    def __aiter__(self) -> _Body:
        return self

    async def __anext__(self) -> bytes:
        if not self._rest:
            raise StopAsyncIteration
        return self._rest.pop()


def encode(data: bytes) -> str:
    """Bytes as the gateway wants them: base64 with padding."""
    return base64.b64encode(data).decode("ascii")


def decode(text: object) -> bytes:
    """Bytes of an answer; a field that was left out is empty."""
    return base64.b64decode(text) if isinstance(text, str) else b""


def number(value: object) -> int:
    """Return a signed number of an answer; one that was left out is 0."""
    return value if isinstance(value, int) else long_or(value if isinstance(value, str) else None, 0)


@attrs.define(eq=False)
class Session:
    """The token of an account: one log-in at a time, for all requests of a process.

    A log-in costs etcd a tenth of a second of a processor (bcrypt), more under load. Requests that found no token, each
    with a log-in at every member, kept etcd busy for longer than they waited. So tasks share one log-in. After a
    failure none is tried for BACK_OFF_S, which doubles up to BACK_OFF_MAX_S: who needs one meanwhile fails with the
    same reason.

    Args:
        log_in: asks a member of etcd for a token: the one at this address, or any.
    """

    log_in: Callable[[str | None], Awaitable[str | None]]
    token: str | None = None
    _lock: trio.Lock = attrs.field(factory=trio.Lock)
    _failures: int = 0  # in a row
    _again_s: float = 0.0  # no log-in before
    _failure: RocketError | None = None

    async def renew(self, refused: str | None, address: str | None) -> None:
        """Get another token than `refused`, unless another task has got one.

        `address`: of the member that has refused it: it answers, where others may be frozen.

        Raises:
            EtcdError, EtcdUnavailable: the log-in failed, now or a moment ago.
        """
        async with self._lock:
            if self.token != refused:
                return
            if self._failure is not None and trio.current_time() < self._again_s:
                raise self._failure.with_traceback(None)  # it would grow with each task
            try:
                self.token = await self.log_in(address)
            except RocketError as exc:
                self._again_s = trio.current_time() + min(BACK_OFF_MAX_S, BACK_OFF_S * 2**self._failures)
                self._failures, self._failure = min(self._failures + 1, 16), exc
                raise
            self._failures, self._failure = 0, None


class Gateway:
    """Calls of etcd. Use it as a context manager. Tasks may share it.

    Raises (every call): EtcdError, EtcdUnavailable.
    """

    def __init__(self, access: Access, pool: httpcore.AsyncConnectionPool | None = None) -> None:
        self.access = access
        self._session = Session(self._log_in)
        self._preferred = 0  # the member that answered last; asked first where only one is asked
        self._pool = pool or httpcore.AsyncConnectionPool(
            ssl_context=access.tls,
            max_connections=8 * len(access.addresses),
            max_keepalive_connections=8,
            keepalive_expiry=KEEP_S,
        )

    async def __aenter__(self) -> Gateway:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.aclose()

    # --- the calls ----------------------------------------------------------------------------------------------------

    async def grant(self, ttl_s: int) -> tuple[int, int]:
        """Ask for a lease; return its number and the seconds that were granted, which may be more."""
        answer = await self._ask_all("lease/grant", {"TTL": str(ttl_s)})
        lease, granted_s = number(answer.get("ID")), number(answer.get("TTL"))
        if lease <= 0 or granted_s <= 0:  # 0 would be "no lease" where a key is written with it
            raise EtcdUnavailable(f"this is no grant of a lease: {str(answer)[:200]}")
        return lease, granted_s

    async def keep_alive(self, lease: int) -> int:
        """Renew a lease. Returns: the seconds that it has; 0 if it is gone."""
        answer = await self._ask_all("lease/keepalive", {"ID": str(lease)})
        result = _object(answer.get("result"))
        if number(result.get("ID")) != lease:
            raise EtcdUnavailable(f"this is no renewal of lease {lease}: {str(answer)[:200]}")
        return number(result.get("TTL"))

    async def seconds_left(self, lease: int) -> int:
        """Return the time that a lease lives if it is not renewed; 0 if it is gone."""
        answer = await self._ask_all("lease/timetolive", {"ID": str(lease)})
        return max(0, number(answer.get("TTL")))

    async def revoke(self, lease: int) -> None:
        """End a lease; afterwards it is gone for certain."""
        try:
            await self._ask_all("lease/revoke", {"ID": str(lease)})
        except EtcdError as exc:
            if exc.code != NOT_FOUND:
                raise

    async def read(self, prefix: bytes) -> dict[str, Any]:
        """Return all keys that begin with `prefix`, by a linearizable read."""
        return await self._ask_all("kv/range", range_of(prefix))

    async def status(self) -> EtcdStatus:
        """Alarms and the size of the database. It needs no account."""
        answer = await self._ask_all("maintenance/status", {})
        errors = answer.get("errors")
        texts = [text for text in errors if isinstance(text, str)] if isinstance(errors, list) else []
        alarms = sorted({text.partition("alarm:")[2].strip() or text[:80] for text in texts})
        revision = number(_object(answer.get("header")).get("revision"))
        return EtcdStatus(revision=revision, db_bytes=number(answer.get("dbSize")), alarms=", ".join(alarms))

    async def compact(self, revision: int) -> None:
        """Remove the history before `revision`; do nothing if it is removed already."""
        try:
            await self._ask_all("kv/compaction", {"revision": str(revision)})
        except EtcdUnavailable as exc:
            if COMPACTED_TEXT not in str(exc):
                raise

    async def put(self, key: bytes, value: bytes, lease: int = 0) -> None:
        """Write a key. Repeating it does no harm."""
        await self._ask_all("kv/put", {"key": encode(key), "value": encode(value), "lease": str(lease)})

    async def transact(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Ask one member for one transaction. EtcdUnavailable: it may have succeeded, or may yet, unless `unsent`."""
        addresses, first = self.access.addresses, self._preferred
        for turn in range(len(addresses)):
            at = (first + turn) % len(addresses)
            try:
                answer = await self._ask(addresses[at], "kv/txn", body)
            except EtcdUnavailable as exc:
                self._preferred = (at + 1) % len(addresses)
                if not exc.unsent:
                    raise
            else:
                self._preferred = at
                return answer
        raise EtcdUnavailable("no member of etcd takes connections", unsent=True)

    async def watch(self, prefix: bytes, revision: int, tell: Callable[[], None]) -> None:
        """Call `tell` when something with this prefix has changed, at or after `revision`.

        It is a hint to read, no more: a member that hangs stays silent.

        Returns: when etcd does not go on, because the revision is compacted for example.
        """
        at = self._preferred
        body = {"create_request": {**range_of(prefix), "start_revision": str(revision)}}
        address = self.access.addresses[at]

        def see(line: bytes) -> bool:
            result = _object(_object(_parsed(line)).get("result"))
            if result.get("events"):
                tell()
            return bool(result) and not result.get("canceled")

        try:
            async with self._answer(address, "watch", body, self._session.token, read_s=None) as response:
                await _lines(response, see)
        except FAILURES as exc:
            self._preferred = (at + 1) % len(self.access.addresses)
            raise EtcdUnavailable(f"{address}/v3/watch: {_why(exc)}") from exc

    # --- how they are made --------------------------------------------------------------------------------------------

    async def _ask_all(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Ask for something that may be done twice: one member, and soon all others. Returns: the first answer."""
        answers: list[dict[str, Any]] = []
        errors: list[RocketError] = []
        failed = trio.Event()

        async def ask(at: int) -> None:
            try:
                answers.append(await self._ask(self.access.addresses[at], path, body))
            except (EtcdError, EtcdUnavailable) as exc:
                errors.append(exc)
                failed.set()
            else:
                self._preferred = at
                nursery.cancel_scope.cancel()

        first = self._preferred
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, first)
            with trio.move_on_after(HEDGE_S):
                await failed.wait()
            for at in range(len(self.access.addresses)):
                if at != first:
                    nursery.start_soon(ask, at)
        if answers:
            return answers[0]
        raise next((one for one in errors if isinstance(one, EtcdError)), errors[0])

    async def _ask(self, address: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Make one request to one member, again with a new token if the old one is not taken any more."""
        session, has_account = self._session, self.access.user is not None
        if has_account and session.token is None and path not in OPEN_PATHS:
            await self._renew(None, None)
        token = session.token
        try:
            return await self._post(address, path, body, token)
        except EtcdError as exc:
            if not exc.wants_log_in or not has_account:
                raise
        await self._renew(token, address)
        return await self._post(address, path, body, session.token)

    async def _renew(self, refused: str | None, address: str | None) -> None:
        """Get another token. The request that needs it was not sent, or was refused: nothing was done."""
        try:
            await self._session.renew(refused, address)
        except EtcdUnavailable as exc:
            raise EtcdUnavailable(f"cannot log in: {exc}", unsent=True) from exc

    async def _log_in(self, address: str | None) -> str | None:
        """Ask one member for a token, which all members take: the one at `address`, or the preferred one, and the next
        if it takes no connection. If it does not answer, another one is preferred from then on."""
        addresses = self.access.addresses
        at = self._preferred if address is None else addresses.index(address)
        body = {"name": self.access.user, "password": self.access.password}
        turns_left = 1 if address is not None else len(addresses)
        while True:
            turns_left -= 1
            try:
                answer = await self._post(addresses[at], LOG_IN_PATH, body, None, LOG_IN_TIMEOUT_S)
            except EtcdUnavailable as exc:
                self._preferred = at = (at + 1) % len(addresses)
                if not exc.unsent or not turns_left:
                    raise
            else:
                token = answer.get("token")
                return token if isinstance(token, str) else None

    @asynccontextmanager
    async def _answer(
        self, address: str, path: str, body: Mapping[str, Any], token: str | None, *, read_s: float | None
    ) -> AsyncIterator[httpcore.Response]:
        """Send a request; its answer, to be read inside of the block. Raises: what FAILURES lists."""
        content, wait_s = json.dumps(body).encode(), self.access.timeout_s
        host = address.partition("://")[2]  # httpcore leaves the brackets of an IPv6 address out
        headers = [("Host", host), ("Content-Length", str(len(content))), ("Content-Type", "application/json")]
        if token:
            headers.append(("Authorization", token))  # without "Bearer"
        waits = {"timeout": {"connect": wait_s, "read": read_s, "write": wait_s, "pool": wait_s}}
        url = f"{address}/v3/{path}"
        async with self._pool.stream(
            "POST", url, headers=headers, content=_Body(content), extensions=waits
        ) as response:
            yield response

    async def _post(
        self, address: str, path: str, body: Mapping[str, Any], token: str | None, timeout_s: float | None = None
    ) -> dict[str, Any]:
        url, timeout_s = f"{address}/v3/{path}", timeout_s or self.access.timeout_s
        try:
            with trio.fail_after(timeout_s):
                async with self._answer(address, path, body, token, read_s=timeout_s) as response:
                    content = await _whole(url, response)
        except UNSENT as exc:
            raise EtcdUnavailable(f"{url}: {_why(exc)}", unsent=True) from exc
        except trio.TooSlowError as exc:
            raise EtcdUnavailable(f"{url}: no answer in {timeout_s:g} s") from exc
        except FAILURES as exc:
            raise EtcdUnavailable(f"{url}: {_why(exc)}") from exc
        answer = _object(_parsed(content))
        if response.status == 200 and "error" not in answer:
            return answer
        raise _failure(url, response.status, answer)


def range_of(prefix: bytes) -> dict[str, str]:
    """Return the range of all keys with a prefix: up to its successor."""
    return {"key": encode(prefix), "range_end": encode(prefix[:-1] + bytes([prefix[-1] + 1]))}


def _failure(url: str, status: int, answer: Mapping[str, Any]) -> RocketError:
    fault = answer.get("error")
    nested = _object(fault)  # errors of streams are objects
    code = number(answer.get("code") or nested.get("grpc_code"))
    text = str(nested.get("message") or fault or f"HTTP status {status}")[:200]
    code = UNAUTHENTICATED if status == 401 else code
    return EtcdError(code, text) if code in CERTAIN_CODES else EtcdUnavailable(f"{url}: {text}")


async def _whole(url: str, response: httpcore.Response) -> bytes:
    """Return the content of an answer. Raises: EtcdUnavailable."""
    content = b""
    with trio.CancelScope() as scope:  # leaving the loop would not close the generators inside httpcore in order
        async for part in response.aiter_stream():
            content += part
            if len(content) > ANSWER_MAX:
                scope.cancel()
    if scope.cancelled_caught:
        raise EtcdUnavailable(f"{url}: the answer has more than {ANSWER_MAX} bytes")
    return content


async def _lines(response: httpcore.Response, see: Callable[[bytes], bool]) -> None:
    """Pass on the lines of a stream, as long as `see` is True. A line of more than ANSWER_MAX bytes ends it."""
    rest = b""
    with trio.CancelScope() as scope:  # leaving the loop would not close the generators inside httpcore in order
        async for part in response.aiter_stream():
            *lines, rest = (rest + part).split(b"\n")
            if len(rest) > ANSWER_MAX or not all(see(line) for line in lines):
                scope.cancel()


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _why(exc: Exception) -> str:
    return str(exc) or type(exc).__name__
