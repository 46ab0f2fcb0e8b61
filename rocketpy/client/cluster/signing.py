"""Signs requests for servers with access control.

Source: RocketMQ 4.9 `AclClientRPCHook`, `AclUtils#combineRequestContent`, `AclSigner`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

from rocketpy.remoting.command import RemotingCommand

from ..options import Credentials

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"


def sign(command: RemotingCommand, credentials: Credentials) -> None:
    """Put key and signature into the request's fields; made anew for each attempt, because fields change.

    The signed text is the values of all fields but the signature, in Java's order of their names, then the body.
    """
    command.add_ext_field(ACCESS_KEY, credentials.access_key)
    if credentials.security_token:
        command.add_ext_field(SECURITY_TOKEN, credentials.security_token)
    fields = command.ext_fields or {}
    names = sorted((name for name in fields if name != SIGNATURE), key=lambda name: name.encode("utf-16-be"))
    content = "".join(fields[name] for name in names).encode() + (command.body or b"")
    digest = hmac.new(credentials.secret_key.encode(), content, hashlib.sha1).digest()
    command.add_ext_field(SIGNATURE, base64.b64encode(digest).decode())
