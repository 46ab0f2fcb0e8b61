"""The signature of a request: which bytes are signed, by clients and by servers that check.

    content     the values of all extFields but the signature, in Java's order of their names, then the body
    signature   base64 of HMAC-SHA1 of the content, with the secret key

Names, request code and opaque are not signed, and there is no time in it: a frame that was read by others can be sent
again. Some clients leave out a field when they sign, so a server tries the content without it as well:
`_UNIQUE_KEY_QUERY` (clients of the reference before 4.9.4), `SecurityToken` (Go).

Source: RocketMQ 4.9 `AclUtils#combineRequestContent`, `AclSigner`, `PlainAccessValidator#parse`.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Collection, Mapping

import attrs

from .command import RemotingCommand

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"
SIGNING_FIELDS = frozenset({ACCESS_KEY, SECURITY_TOKEN, SIGNATURE})
"""What `sign` adds: for the server that is asked, and for nobody else."""
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
_SIGNED_OR_NOT = (UNIQUE_KEY_QUERY, SECURITY_TOKEN)


@attrs.frozen
class Credentials:
    """Signs every request (HMAC-SHA1), for brokers with access control."""

    access_key: str
    secret_key: str = attrs.field(repr=False)
    security_token: str | None = attrs.field(default=None, repr=False)


def sign(command: RemotingCommand, credentials: Credentials) -> None:
    """Put key and signature into the request's fields. Each attempt is signed anew, because fields change."""
    command.add_ext_field(ACCESS_KEY, credentials.access_key)
    if credentials.security_token:
        command.add_ext_field(SECURITY_TOKEN, credentials.security_token)
    content = signed_content(command.ext_fields or {}, command.body)
    command.add_ext_field(SIGNATURE, signature_of(content, credentials.secret_key))


def is_signed(command: RemotingCommand, secret_key: str) -> bool:
    """Return True if the request carries a signature that this key makes of what arrived.

    The comparison takes the same time for every wrong signature. A request costs one HMAC of its body, and up to three
    more if it has the fields that some clients leave out.
    """
    fields = command.ext_fields or {}
    given = fields.get(SIGNATURE)
    if given is None:
        return False
    left_out: list[tuple[str, ...]] = [()]
    for name in _SIGNED_OR_NOT:
        if name in fields:
            left_out += [(*names, name) for names in left_out]
    expected = (signature_of(signed_content(fields, command.body, names), secret_key) for names in left_out)
    found = given.encode("utf-8", "replace")
    return any(hmac.compare_digest(found, one.encode()) for one in expected)


def signed_content(fields: Mapping[str, str], body: bytes | None, left_out: Collection[str] = ()) -> bytes:
    """The bytes that are signed. `left_out` names further fields that are not."""
    names = [name for name in fields if name != SIGNATURE and name not in left_out]
    if all(map(str.isascii, names)):
        names.sort()
    else:
        names.sort(key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    return "".join([fields[name] for name in names]).encode("utf-8", "replace") + (body or b"")


def signature_of(content: bytes, secret_key: str) -> str:
    return base64.b64encode(hmac.digest(secret_key.encode("utf-8", "replace"), content, "sha1")).decode()
