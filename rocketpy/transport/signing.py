"""SigningClient: a RemotingClient whose requests carry a signature, for servers with access control.

Short: RemotingClient itself is for callers that sign, or need no signature.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.signature import Credentials, sign

from .client import RemotingClient


@attrs.frozen(eq=False)
class SigningClient:
    """Requests of a broker. `credentials` is asked for each request, because their file may change."""

    client: RemotingClient
    credentials: Callable[[], Credentials]

    async def invoke(self, address: str, request: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """As RemotingClient.invoke. A request that is sent again is signed again."""
        return (await self.invoke_all(address, [request], timeout_s))[0]

    async def invoke_all(
        self, address: str, requests: Sequence[RemotingCommand], timeout_s: float
    ) -> list[RemotingCommand]:
        """As RemotingClient.invoke_all."""
        credentials = self.credentials()
        for request in requests:
            sign(request, credentials)
        return await self.client.invoke_all(address, requests, timeout_s)
