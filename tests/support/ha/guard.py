"""A group that serves nobody without TLS and an account: its certificates, its accounts, and what its clients need.

Each server has its own certificate and its own copy of the accounts. Members prove a secret at the HA port as well.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import attrs

from rocketpy.remoting.signature import Credentials
from tests.support.accounts import BROKER, SECRET, write_accounts, write_credentials
from tests.support.certificates import Authority

CLIENT = Credentials("of-clients", SECRET)
ACCOUNTS = f"""
accounts:
- {{accessKey: {BROKER}, secretKey: {SECRET}, defaultTopicPerm: PUB, defaultGroupPerm: SUB}}
- {{accessKey: {CLIENT.access_key}, secretKey: {SECRET}, defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB}}
"""  # members pass sends on: docs/run/access-control.md
TLS_ALONE = {"tls.server.mode": "enforcing", "tls.config.file": "/dev/null"}


@attrs.frozen
class Guard:
    """Makes files in `directory`, which exists."""

    directory: Path
    authority: Authority = attrs.field(init=False)

    @authority.default
    def _authority(self) -> Authority:
        return Authority(self.directory / "certificates")

    def server(self, name: str) -> dict[str, str]:
        """The properties by which a server takes only TLS and signed requests."""
        return TLS_ALONE | self.authority.issue().settings() | write_accounts(self.directory / f"home-{name}", ACCOUNTS)

    def member(self, name: str) -> dict[str, str]:
        """Those of a server, and by which it calls name servers and other members."""
        secret = self.directory / "ha-secret"
        secret.write_text("the secret of this test's group\n")
        calls = self.authority.trusting() | write_credentials(self.directory) | {"haSecretFile": str(secret)}
        return self.server(name) | calls

    def context(self) -> ssl.SSLContext:
        """By which clients call."""
        return ssl.create_default_context(cafile=self.authority.ca_file)
