"""Access control in a process that decides about requests, and the owner of the accounts' files in the manager.

    files -> AccountsKeeper (manager) -> shared memory, a new version -> AccessControl (manager, query workers)
                                                                      -> codecs and selectors (csrc/ipc/access.h)

Each AccessControl compares the shared version with its own at each request, and reads the accounts when they differ:
the first request after a publication is decided by the new accounts.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import attrs
import trio

from rocketpy.acl.accounts import Accounts
from rocketpy.acl.files import POLL_INTERVAL_S, AclFiles
from rocketpy.acl.permissions import PUB
from rocketpy.acl.resources import CHECKED_WHEN_READ, NAMED_IN_BODIES
from rocketpy.acl.validator import AccessValidator, Reason, Refusal, broker_keys
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.config import BrokerSettings
from rocketpy.errors import RequestRefused
from rocketpy.logs import LogLimit, and_more
from rocketpy.message.record import StoredRecord
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.acl import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from rocketpy.remoting.signature import ACCESS_KEY, is_signed
from rocketpy.transport.duties import Duty
from rocketpy.transport.steps import AT_ONCE_BYTES_MAX

from .clock import SystemClock
from .store_api import Store

logger = logging.getLogger(__name__)

DECISIONS_MAX = 1024
"""Decisions of one account in DECISIONS_S, of the 16 384 of the fast path (csrc/ipc/access.h). A sender makes its group
up, so it could have a decision for each request, and push out those of all others. Requests without one are checked
here."""
DECISIONS_S = 60.0
REPLACED_S = 1.0  # to replace all accounts takes tens of ms

_BY_NAME, _BY_LETTER = ("topic", "producerGroup"), ("b", "a")
_FAST: dict[int, tuple[str, str]] = {  # the fields of topic and group
    RequestCode.SEND_MESSAGE: _BY_NAME,
    RequestCode.SEND_MESSAGE_V2: _BY_LETTER,
    RequestCode.SEND_BATCH_MESSAGE: _BY_LETTER,
    RequestCode.PULL_MESSAGE: ("topic", "consumerGroup"),
    RequestCode.LITE_PULL_MESSAGE: ("topic", "consumerGroup"),
}


class PublishedAccounts(Protocol):
    """Accounts in shared memory (broker/fast_path/shared_access.py)."""

    @property
    def version(self) -> int:
        """The version of the accounts, which changes with each publication; odd: one is under way."""

    def publish(self, accounts: Accounts) -> None:
        """Replace all accounts. Raises ConfigError: they are too large."""

    def read(self) -> tuple[int, Accounts] | None:
        """The accounts with their version. None: they are just being replaced."""

    def count(self, reason: Reason) -> None:
        """Count a refused request."""

    @property
    def refused(self) -> Mapping[str, int]:
        """Refused requests by reason, of all processes."""

    def allow(self, version: int, code: int, access_key: str, topic: str, group: str) -> None:
        """Let the fast path serve such requests until the version changes."""


class Limits(Protocol):
    """Limits of addresses and accounts (broker/fast_path/shared_limits.py)."""

    limits_accounts: bool

    def failed(self, host: str) -> bool:
        """The identity of a request from `host` was refused, or what it sent is no request. Returns True if that blocks
        the address now."""

    def take(self, access_key: str, size: int) -> str | None:
        """A request of `size` bytes of this account. Returns: None: let it pass; else the remark to refuse it with."""


@attrs.define(eq=False)
class AccessControl:
    """Decides about requests, for one process.

    Args:
        limits: None: requests and refusals are not limited.
        now_s: seconds that only grow.
    """

    published: PublishedAccounts
    validator: AccessValidator
    limits: Limits | None = None
    now_s: Callable[[], float] = time.monotonic
    _entered: Counter[str] = attrs.field(factory=Counter, init=False)  # by access key, since then
    _entered_since_s: float = attrs.field(default=0.0, init=False)
    _blocked: LogLimit = attrs.field(factory=LogLimit, init=False)
    _version: int = attrs.field(default=0, init=False)
    _long: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _checking: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(1), init=False)

    @classmethod
    def of(
        cls, published: PublishedAccounts, *, strict: bool, brokers: str, limits: Limits | None = None
    ) -> AccessControl:
        """Before the process serves: `strict` is the setting aclStrict, `brokers` aclBrokerAccounts.

        Accounts that are just being replaced are waited for: without any, the first requests would be refused.
        """
        validator = AccessValidator(Accounts(), strict=strict, brokers=broker_keys(brokers))
        access = cls(published, validator, limits)
        until_s = time.monotonic() + REPLACED_S
        while not access._refresh() and time.monotonic() < until_s:
            time.sleep(REPLACED_S / 1000)
        return access

    @property
    def is_strict(self) -> bool:
        return self.validator.strict

    @property
    def version(self) -> int:
        """The version of the accounts; a request that was allowed under another one is checked again."""
        return self.published.version

    def check(self, request: RemotingCommand, host: str, *, is_counted: bool = False) -> None:
        """Let a request from the numeric address `host` pass. `is_counted`: its account was charged for it.

        Raises:
            RequestRefused: code 1, with the reference's text; code 2, if its account has sent too much.
        """
        self._refresh()
        self._finish(request, host, self.validator.check(request, host), is_counted=is_counted)

    def is_long(self, request: RemotingCommand) -> bool:
        """Return True if the check reads a large body: `check_long` does not keep others from being served."""
        return request.code in NAMED_IN_BODIES and len(request.body or b"") > AT_ONCE_BYTES_MAX

    async def check_long(self, request: RemotingCommand, host: str, *, is_counted: bool = False) -> None:
        """As `check`; the body is read in a thread, one at a time. It is not that of `read_body`, for which the only
        task of a pool may wait. The accounts are those of the time when that begins: the loop alone takes new ones
        over, since each decision for the fast path belongs to a version."""
        async with self._long:
            self._refresh()
            refusal = await trio.to_thread.run_sync(self.validator.check, request, host, limiter=self._checking)
        self._finish(request, host, refusal, is_counted=is_counted)

    def check_topic(self, request: RemotingCommand, host: str, topic: str) -> None:
        """Check the topic of a message that the request names by its place (acl.resources.CHECKED_WHEN_READ)."""
        self._refresh()
        self._raise(self.validator.check_topic(request, host, topic, CHECKED_WHEN_READ[request.code]), host)

    def check_message(self, request: RemotingCommand, host: str, record: StoredRecord, store: Store) -> None:
        """Check a message that is to be shown or copied. A place in the log may be inside of a message's body, which
        could look like a record with other messages for its body: a queue has to name the place.

        Raises:
            RequestRefused: code 1, with the reference's text, or because no queue does.
        """
        if not self.is_strict:
            return
        units = store.consume_queue_units(record.topic, record.queue_id, record.queue_offset, 1)
        if not units or units[0].phy_offset != record.phy_offset:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"there is no message of topic {record.topic} at offset {record.phy_offset}"
            )
        self.check_topic(request, host, record.topic)

    def signer(self, request: RemotingCommand) -> str:
        """Return the access key of a request that was allowed, to remember its client by; empty without strict, as in
        the reference, or if a white list has let it pass without a key."""
        return request.ext_field(ACCESS_KEY) or "" if self.is_strict else ""

    def may_send(self, access_key: str, host: str, topic: str) -> bool:
        """Return True if the account of a connected client (`signer`) may send to a topic now; without strict any."""
        self._refresh()
        return not self.is_strict or self.validator.may(access_key, host, topic, PUB)

    def check_fast(
        self, request: RemotingCommand, host: str, topic: str, group: str, *, is_counted: bool = False
    ) -> None:
        """Check a send or pull that the fast path has left to Python. It serves the next of this account itself, unless
        a white list has let this one pass.

        Raises:
            RequestRefused: also if `topic` or `group`, which are what the fast path has read, are not in the request.
        """
        self.check(request, host, is_counted=is_counted)
        fields = request.ext_fields or {}
        if tuple(map(fields.get, _FAST[request.code])) != (topic, group):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "topic and group of the request are ambiguous")
        if self.validator.needs_signature(request, host) and self._may_enter(fields[ACCESS_KEY]):
            self.published.allow(self._version, request.code, fields[ACCESS_KEY], topic, group)

    def _may_enter(self, access_key: str) -> bool:
        """Count a decision for the fast path. Returns False if the account has had its share."""
        now_s = self.now_s()
        if now_s - self._entered_since_s >= DECISIONS_S:
            self._entered_since_s = now_s
            self._entered.clear()
        self._entered[access_key] += 1
        return self._entered[access_key] <= DECISIONS_MAX

    def distrust(self, host: str) -> None:
        """The numeric address `host` has sent a command that cannot be read, or a response to no request: for its limit
        a failed authentication, unless a global white list has it."""
        self._refresh()
        if not self.validator.accounts.is_white(host):
            self.published.count(Reason.MALFORMED)
            self._count_failure(host)

    def _finish(self, request: RemotingCommand, host: str, refusal: Refusal | None, *, is_counted: bool) -> None:
        if not is_counted and (refusal is None or not refusal.is_of_identity):
            self._limit(request, host)  # also a request that the account may not make: a refusal costs as much
        self._raise(refusal, host)

    def _limit(self, request: RemotingCommand, host: str) -> None:
        """Charge a request to the account that has signed it, as the fast path does: from a white address, too. Not to
        brokers: they pass on sends that were counted."""
        if self.limits is None or not self.limits.limits_accounts:
            return
        access_key = request.ext_field(ACCESS_KEY) or ""
        account = self.validator.accounts.by_key.get(access_key)
        if account is None or access_key in self.validator.brokers:
            return
        if not self.validator.needs_signature(request, host) and not is_signed(request, account.secret_key):
            return  # a white address may name any account
        remark = self.limits.take(access_key, request.held_size)
        if remark is not None:
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, remark)

    def _raise(self, refusal: Refusal | None, host: str) -> None:
        if refusal is None:
            return
        self.published.count(refusal.reason)
        if refusal.is_of_identity:
            self._count_failure(host)
        raise RequestRefused(refusal.response_code, refusal.remark)

    def _count_failure(self, host: str) -> None:
        is_blocked = self.limits is not None and self.limits.failed(host)
        if is_blocked and (told := self._blocked.take()):
            more = and_more(told)
            logger.warning(
                "failed authentications: %s is blocked for a minute%s (failedAuthenticationsMax)", host, more
            )

    def _refresh(self) -> bool:
        """Return False if the accounts are just being replaced: those read last count."""
        if self.published.version == self._version:
            return True
        if (found := self.published.read()) is None:
            return False
        self._version, self.validator.accounts = found
        return True


def account_files(settings: BrokerSettings) -> AclFiles:
    """The files of accounts of this broker."""
    return AclFiles(Path(settings.server.rocketmq_home), now_ms=SystemClock().now_ms)


@attrs.frozen
class AccessStatistics:
    """Figures of access control."""

    accounts: int  # published by this manager
    refused: Mapping[str, int]  # by reason, in all processes
    reload_failures: int
    failing_files: int


class AccountsKeeper:
    """Owns the files of accounts, in the manager: watches them, and publishes what they hold.

    Files that cannot be read, or are empty, keep the accounts as they were. A manager that was restarted does not know
    what such a file held: it publishes nothing until all are in order.
    """

    def __init__(self, files: AclFiles, published: PublishedAccounts) -> None:
        self.files = files
        self._published = published
        self._is_known = False  # what each file held is known
        self._count = 0  # accounts that were published
        self._busy = trio.Lock()

    @property
    def statistics(self) -> AccessStatistics:
        return AccessStatistics(self._count, self._published.refused, self.files.failures, len(self.files.failing))

    @property
    def duty(self) -> Duty:
        """Look at the files."""
        return Duty("looking at the files of accounts", POLL_INTERVAL_S, self.look, first_s=0.0)

    async def look(self) -> None:
        """Publish the accounts if files have changed."""
        await self._run(self.files.poll)

    async def update(self, request: RemotingCommand) -> None:
        """Add or change an account (50), and publish. Raises RequestRefused: nothing has changed."""
        header = CreateAccessConfigRequestHeader.of(request)
        await self._run(lambda: self.files.update_account(header))

    async def delete(self, request: RemotingCommand) -> None:
        """Remove an account (51), and publish. Raises RequestRefused: nothing has changed."""
        header = DeleteAccessConfigRequestHeader.of(request)
        await self._run(lambda: self.files.delete_account(header))

    async def update_white_addresses(self, request: RemotingCommand) -> None:
        """Replace a list of white addresses (53), and publish. Raises RequestRefused: nothing has changed."""
        header = UpdateGlobalWhiteAddrsConfigRequestHeader.of(request)
        await self._run(lambda: self.files.update_white_addresses(header))

    async def _run(self, read: Callable[[], Accounts | None]) -> None:
        """`read` waits for the disk, and to publish takes time that grows with the table: both are work of a thread."""

        def work() -> None:
            accounts = read()
            self._is_known = self._is_known or self.files.are_whole
            if accounts is not None and self._is_known:
                self._published.publish(accounts)
                self._count = len(accounts.by_key)
                logger.info("accounts in effect: %d", self._count)

        async with self._busy:
            await trio.to_thread.run_sync(work)
