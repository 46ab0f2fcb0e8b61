"""AccessValidator: decides about each request, in the order of the reference.

    1 the peer is in a global white list           allowed
    2 no access key                                refused
    3 no account of this key                       refused
    4 the peer is in the account's white list      allowed, without a signature
    5 the signature is not the account's           refused
    6 a send to the trace topic                    allowed
    7 the code is an administrator's               refused unless the account is one
    8 no resources are needed                      allowed
    9 for each resource                            refused unless the account may

`strict` takes the table STRICT of resources.py; without it the reference's holes are open. Codes of brokers (step 7)
are for administrators and for the accounts of `brokers`. With `strict` a default permission gives no access to topics
that keep messages of other topics. A request whose resources cannot be read is refused between 5 and 6; the reference
refuses a heartbeat that it cannot read before 1.

Source: RocketMQ 4.9 `PlainPermissionManager#validate`, `#checkPerm`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

import attrs

from rocketpy.codes import ResponseCode
from rocketpy.errors import RemoteProtocolError
from rocketpy.faults import printable
from rocketpy.logs import LogLimit, and_more
from rocketpy.message.names import TRACE_TOPIC
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.signature import ACCESS_KEY, is_signed

from .accounts import Account, Accounts
from .permissions import PUB, shown
from .resources import INNER_TOPICS, REFERENCE, SIGNATURE_ONLY, STRICT, Access, Need

logger = logging.getLogger(__name__)

EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "
"""The begin of the remarks of the reference. It appends a line of its stack trace; these end with the text."""


def broker_keys(text: str) -> frozenset[str]:
    """The access keys of a comma-separated list (aclBrokerAccounts)."""
    return frozenset(filter(None, (key.strip() for key in text.split(","))))


class Reason(StrEnum):
    """Why a request was refused; a label of metrics."""

    NO_ACCESS_KEY = "no_access_key"
    UNKNOWN_ACCESS_KEY = "unknown_access_key"
    SIGNATURE = "signature"
    ROLE = "role"
    RESOURCE = "resource"
    MALFORMED = "malformed"


@attrs.frozen
class Refusal:
    """The answer to a request that is not allowed."""

    reason: Reason
    text: str

    @property
    def response_code(self) -> int:
        """SYSTEM_ERROR, not NO_PERMISSION: clients of the reference know refusals by this code."""
        return ResponseCode.SYSTEM_ERROR

    @property
    def remark(self) -> str:
        return EXCEPTION + self.text

    @property
    def is_of_identity(self) -> bool:
        """The sender did not prove to be an account."""
        return self.reason in (Reason.NO_ACCESS_KEY, Reason.UNKNOWN_ACCESS_KEY, Reason.SIGNATURE)


@attrs.define(eq=False)
class AccessValidator:
    """The decisions of one process. `accounts` is replaced when the files have changed. Name servers read `refused`,
    which with several threads may miss a refusal; a broker counts in shared memory (`AccessControl`).

    Args:
        brokers: access keys of the brokers' own accounts.
    """

    accounts: Accounts
    strict: bool = True
    brokers: frozenset[str] = frozenset()
    refused: Counter[Reason] = attrs.field(factory=Counter, init=False)
    _limit: LogLimit = attrs.field(factory=LogLimit, init=False)

    def check(self, request: RemotingCommand, host: str) -> Refusal | None:
        """Decide about a request from the numeric address `host`. Returns: None: it is allowed."""
        account = self._account(request, host)
        if isinstance(account, Account):
            if is_signed(request, account.secret_key):
                refusal = self._check_needs(account, request)
            else:
                text = f"Check signature failed for accessKey={account.access_key}"
                refusal = Refusal(Reason.SIGNATURE, text)
        else:
            refusal = account
        return self._counted(refusal, request, host)

    def check_topic(self, request: RemotingCommand, host: str, topic: str, needed: int) -> Refusal | None:
        """Decide again about a request that `check` has allowed, when the topic is known of the message that it names
        (resources.CHECKED_WHEN_READ). Returns: None: it is allowed, as is everything without `strict`."""
        account = self._account(request, host) if self.strict else None
        refusal = self._check_resources(account, [(topic, needed)]) if isinstance(account, Account) else account
        return self._counted(refusal, request, host)

    def may(self, access_key: str, host: str, resource: str, needed: int) -> bool:
        """Return True if a client whose signature was checked before, at `host`, has one of the needed permissions."""
        account = self._account_of(access_key, host)
        if isinstance(account, Account):
            return self._check_resources(account, [(resource, needed)]) is None
        return account is None

    def needs_signature(self, request: RemotingCommand, host: str) -> bool:
        """Return True if the permissions of an account decide about the request: no white list lets it pass."""
        return isinstance(self._account(request, host), Account)

    def _account(self, request: RemotingCommand, host: str) -> Account | Refusal | None:
        return self._account_of(request.ext_field(ACCESS_KEY), host)

    def _account_of(self, access_key: str | None, host: str) -> Account | Refusal | None:
        """The account whose permissions count; None: everything is allowed to the peer."""
        if self.accounts.is_white(host):
            return None
        if access_key is None:
            return Refusal(Reason.NO_ACCESS_KEY, "No accessKey is configured")
        account = self.accounts.by_key.get(access_key)
        if account is None:
            return Refusal(Reason.UNKNOWN_ACCESS_KEY, f"No acl config for {access_key}")
        return None if account.white_addresses.has(host) else account

    def _check_needs(self, account: Account, request: RemotingCommand) -> Refusal | None:
        rule = (STRICT if self.strict else REFERENCE).get(request.code, SIGNATURE_ONLY)
        try:
            needs = rule.needs(request)
        except RemoteProtocolError as error:
            return Refusal(Reason.MALFORMED, str(error))
        if (TRACE_TOPIC, PUB) in needs:
            return None
        if not (account.is_admin or self._has_role(account, rule.access)):
            text = f"Need admin permission for request code={request.code}, but accessKey={account.access_key} is not"
            return Refusal(Reason.ROLE, text)
        return self._check_resources(account, needs)

    def _has_role(self, account: Account, access: Access) -> bool:
        return access is Access.ANY or (access is Access.BROKER and account.access_key in self.brokers)

    def _check_resources(self, account: Account, needs: Iterable[Need]) -> Refusal | None:
        for resource, needed in needs:
            if resource is None:
                if not account.may_somewhere(needed):
                    return Refusal(Reason.RESOURCE, "No default permission for any topic")
            elif not account.may(resource, needed) or not self._may_use_inner_topic(account, resource):
                return Refusal(Reason.RESOURCE, f"No default permission for {shown(resource)}")
        return None

    def _may_use_inner_topic(self, account: Account, resource: str) -> bool:
        is_inner = self.strict and resource in INNER_TOPICS
        return not is_inner or account.may_everything or resource in account.permissions

    def _counted(self, refusal: Refusal | None, request: RemotingCommand, host: str) -> Refusal | None:
        if refusal is not None:
            self.refused[refusal.reason] += 1
            told = self._limit.take(refusal.reason)
            if told:
                text, more = printable(refusal.text), and_more(told)
                logger.warning("access control refused %s of %s%s: %s", request.name, host, more, text)
        return refusal
