"""The secret that brokers of rocketpy prove to each other before a byte of the log is sent (haSecretFile).

Each side proves it by an HMAC over both nonces, its role and all that it says: what is heard cannot be changed, used
again, nor sent back.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from rocketpy.errors import ConfigError

KEY = "haSecretFile"
SECRET_MIN, SECRET_MAX = 16, 4096  # bytes
MASTER, SLAVE = "master", "slave"
NONCE = re.compile(r"[0-9a-f]{32}")


def read_secret(path: str | None) -> bytes:
    """The secret, without the blanks around it; empty: there is no file.

    Raises:
        ConfigError: the file cannot be read, or has no secret.
    """
    if path is None:
        return b""
    try:
        with Path(path).open("rb") as file:
            secret = file.read(SECRET_MAX + 1).strip()
    except OSError as exc:
        raise ConfigError(f"cannot read {path}: {exc.strerror}", key=KEY) from exc
    if not SECRET_MIN <= len(secret) <= SECRET_MAX:
        raise ConfigError(f"{path} must have {SECRET_MIN} to {SECRET_MAX} bytes, the same on all brokers", key=KEY)
    return secret


def new_nonce() -> str:
    return secrets.token_hex(16)


def make_proof(secret: bytes, role: str, challenge: str, nonce: str, content: str) -> str:
    """HMAC-SHA256 in hexadecimal digits, over what the side `role` says in this handshake; empty without a secret."""
    if not secret:
        return ""
    text = "\n".join((role, challenge, nonce, content))
    return hmac.new(secret, text.encode(errors="surrogatepass"), hashlib.sha256).hexdigest()


def is_proof(given: str, expected: str) -> bool:
    """In constant time. Without a secret (`expected` is empty) anything is."""
    return not expected or hmac.compare_digest(given.encode(errors="surrogatepass"), expected.encode())


@attrs.frozen
class Nonces:
    """The nonces of one handshake: of CHALLENGE, and of HELLO; the latter is empty if HELLO could not be read."""

    challenge: str
    hello: str

    def proof(self, secret: bytes, role: str, fields: Mapping[str, Any]) -> str:
        """Return the proof over all of `fields`; empty without a secret."""
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        return make_proof(secret, role, self.challenge, self.hello, text)
