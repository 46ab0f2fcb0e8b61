"""Access control of a name server: each request is checked before its processor sees it.

The reference has none here: whoever reaches its port may register a broker, and so get the messages of all producers.
Files of accounts are those of a broker, and so are the rules (rocketpy/acl).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import attrs
import trio

from rocketpy.acl.files import POLL_INTERVAL_S, AclFiles
from rocketpy.acl.validator import AccessValidator, broker_keys
from rocketpy.config import NamesrvSettings
from rocketpy.remoting.abc import Channel, Processor, Response
from rocketpy.remoting.command import RemotingCommand
from rocketpy.transport.duties import Duty

LARGE_BYTES = 65_536
"""A larger body is hashed in a thread. A registration of 16 MiB takes 20 ms, up to four times that if it is forged."""


@attrs.frozen(kw_only=True)
class AccessStatistics:
    """Counters; the fields are those of `metrics.AccessSnapshot`."""

    accounts: int
    refused: Mapping[str, int]
    reload_failures: int
    failing_files: int


class AccessControl:
    """A Processor (remoting/abc.py) around that of the name server."""

    def __init__(self, settings: NamesrvSettings, processor: Processor) -> None:
        """Read the accounts. Raises: ConfigError: a file of accounts cannot be used."""
        self._files = AclFiles(Path(settings.server.rocketmq_home), now_ms=lambda: time.time_ns() // 1_000_000)
        own = settings.rocketpy
        brokers = broker_keys(own.acl_broker_accounts)
        self._validator = AccessValidator(self._files.load(), strict=own.acl_strict, brokers=brokers)
        self._processor = processor
        self._hashing = trio.CapacityLimiter(1)

    def refresh(self) -> None:
        """Read the files again, in a worker that was forked later: an account that was revoked since must not be
        accepted. Raises: ConfigError: a file of accounts cannot be used."""
        self._validator.accounts = self._files.load()

    async def process(self, request: RemotingCommand, channel: Channel) -> Response:
        """The answer of the processor, or a refusal."""
        check, host = self._validator.check, channel.peer.host
        if len(request.body or b"") <= LARGE_BYTES:
            refusal = check(request, host)
        else:
            refusal = await trio.to_thread.run_sync(check, request, host, limiter=self._hashing)
        if refusal is not None:
            return RemotingCommand.response(refusal.response_code, refusal.remark)
        return await self._processor.process(request, channel)

    def duty(self) -> Duty:
        """The background duty that reads changed files, in a thread."""
        return Duty("loading changed accounts", POLL_INTERVAL_S, self._poll)

    async def _poll(self) -> None:
        accounts = await trio.to_thread.run_sync(self._files.poll)
        if accounts is not None:
            self._validator.accounts = accounts

    def statistics(self) -> AccessStatistics:
        """Plain numbers; safe to read from another thread."""
        return AccessStatistics(
            accounts=len(self._validator.accounts.by_key),
            refused={reason.value: count for reason, count in self._validator.refused.copy().items()},
            reload_failures=self._files.failures,
            failing_files=len(self._files.failing),
        )
