"""Login: administrators of a file of accounts (plain_acl.yml), and the sessions of their browsers.

The access key is the name, the secret key the password. Accounts that are no administrators are refused, because the
pages show messages of all topics. The file is read at each login and each REVIEW_S; sessions of accounts that are gone,
or have another secret, end then.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from rocketpy.acl.document import FILE_BYTES_MAX
from rocketpy.acl.plain_acl import parse_acl_file
from rocketpy.errors import ConfigError
from rocketpy.faults import printable
from rocketpy.networks import Network, is_in, network_of, parse_address

logger = logging.getLogger(__name__)

SESSIONS_MAX = 200
IDLE_S = 30 * 60.0
SESSION_S = 12 * 3600.0
REVIEW_S = 30.0
FAILURES_MAX = 10  # of an address (of IPv6: a /64) in FAILURES_S; further logins are refused
FAILURES_S = 60.0
NETWORKS_MAX = 1000  # that failures are counted of
RESENT_MAX = 200  # that a session remembers


@attrs.define(eq=False)
class Session:
    """A browser that has logged in. `form_token` proves that a form is one of ours."""

    user: str
    secret_digest: bytes = attrs.field(repr=False)
    begun_s: float
    used_s: float
    form_token: str = attrs.field(init=False, factory=lambda: secrets.token_urlsafe(24), repr=False)
    message: str = attrs.field(init=False, default="")  # shown once, on the next page
    resent: dict[str, float] = attrs.field(init=False, factory=dict)  # dead letters, and when they were sent again


class AccountFile:
    """The administrators of a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def digests(self) -> dict[str, bytes]:
        """Read the file: access key to the digest of its secret. For a thread.

        Raises:
            ConfigError: it cannot be read; the line names the remedy.
        """
        try:
            with self._path.open("rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}; correct --accounts", file=self._path) from error
        accounts = parse_acl_file(data, str(self._path)).accounts
        found: dict[str, bytes] = {}
        for account in accounts:
            if account.is_admin:
                found.setdefault(account.access_key, digest(account.secret_key))
        return found

    def check(self) -> None:
        """Raises ConfigError: nobody could log in."""
        if not self.digests():
            raise ConfigError("it has no account with `admin: true`, so nobody could log in", file=self._path)


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def client_address(peer: str, forwarded: str, proxies: Sequence[Network]) -> str:
    """Return the address of a client, which may come through proxies.

    Each proxy appends the address that it saw to X-Forwarded-For. So addresses count from the end, as long as a proxy
    told them: earlier ones are claims of the client.

    Args:
        peer: the address of the connection.
        forwarded: X-Forwarded-For; all headers of the name, joined by commas.
        proxies: the trusted ones.
    """
    address = peer
    for text in reversed(forwarded.split(",")):
        told = _plain_address(text)
        if told is None or not _is_in(address, proxies):
            break
        address = told
    return address


def _plain_address(text: str) -> str | None:
    """Return an address without port and brackets; None: it is none."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(parse_address(text))
    except ValueError:
        return None


def _is_in(address: str, networks: Sequence[Network]) -> bool:
    plain = _plain_address(address)
    return plain is not None and is_in(parse_address(plain), networks)


def _failure_key(address: str) -> str:
    """Return the key by which failed logins are counted; `address` may have a port and brackets."""
    return network_of(_plain_address(address) or address)


class Sessions:
    """Sessions by their secret tokens. Times are of a clock that only grows."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._sessions: dict[str, Session] = {}
        self._failures: dict[str, list[float]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def may_try(self, address: str) -> bool:
        """Return False if the network of this address failed too often in the last minute."""
        now_s = self._now_s()
        return len(self._recent(_failure_key(address), now_s)) < FAILURES_MAX

    def _recent(self, network: str, now_s: float) -> list[float]:
        return [at_s for at_s in self._failures.get(network, ()) if now_s - at_s < FAILURES_S]

    def log_in(self, address: str, user: str, secret: str, digests: dict[str, bytes]) -> str | None:
        """Return the token of a new session; None: no such administrator."""
        now_s, given = self._now_s(), digest(secret)
        # A comparison in any case: the time does not tell whether the account exists.
        is_right = hmac.compare_digest(digests.get(user, bytes(len(given))), given)
        if not is_right:
            self._failed(_failure_key(address), now_s)
            return None
        while len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[min(self._sessions, key=lambda token: self._sessions[token].used_s)]
        token = secrets.token_urlsafe(32)
        self._sessions[token] = Session(user, given, now_s, now_s)
        return token

    def _failed(self, network: str, now_s: float) -> None:
        failures = [*self._recent(network, now_s), now_s][-FAILURES_MAX:]
        self._failures.pop(network, None)
        self._failures[network] = failures
        if len(failures) == FAILURES_MAX:
            shown = printable(network)
            logger.warning("refusing logins from %s for up to a minute after %d failures", shown, FAILURES_MAX)
        if len(self._failures) > NETWORKS_MAX:
            del self._failures[next(iter(self._failures))]

    def find(self, token: str | None, *, is_use: bool) -> Session | None:
        """Return a session that is not over. A page that refreshes itself is no use: it does not keep a session."""
        session = self._sessions.get(token or "")
        if session is None:
            return None
        now_s = self._now_s()
        if now_s - session.begun_s > SESSION_S or now_s - session.used_s > IDLE_S:
            self.end(token)
            return None
        if is_use:
            session.used_s = now_s
        return session

    def end(self, token: str | None) -> None:
        self._sessions.pop(token or "", None)

    def review(self, digests: dict[str, bytes]) -> None:
        """End the sessions of accounts that are gone, no administrators any more, or have another secret."""
        self._sessions = {
            token: session
            for token, session in self._sessions.items()
            if hmac.compare_digest(digests.get(session.user, b""), session.secret_digest)
        }
