"""The wire format of schema registries, and their HTTP API (Confluent's, which Apicurio and Karapace have as well).

A body is the byte 0, the schema's id in 4 bytes, and the encoded value; of Protobuf the place of the message type in
its file is between them. Ids never change their meaning, so each process asks once for each that is known.
The variable SCHEMA_REGISTRY_USER_INFO holds `user:password`, on every node.
"""

from __future__ import annotations

import base64
import functools
import http.client
import json
import os
import struct
import time
import urllib.error
import urllib.parse
import urllib.request
from http import HTTPStatus
from typing import Any

from rocketpy.errors import ConfigError, ConnectionLost

HEAD = struct.Struct(">bi")  # magic byte, id of the schema
MAGIC = 0
ASK_S = 10.0
ANSWER_MAX = 16 << 20
SCHEMAS_MAX = 1000  # that a process keeps
RETRIABLE_STATUSES = frozenset({404, 408, 429, 500, 502, 503, 504})  # 404 without a code: of a proxy, not of a registry
UNKNOWN_S = 30.0  # in which an id that the registry does not have is not asked for again: each row may have one
UNKNOWN_MAX = 1000  # such ids in UNKNOWN_S; further ids are not asked for: each row may have another one
USER_INFO = "SCHEMA_REGISTRY_USER_INFO"
MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


class BodyUnreadable(ValueError):
    """A body is not of its format; the text goes to the column of errors."""


def split(body: bytes) -> tuple[int, bytes]:
    """Return the schema's id and what follows it. Raises BodyUnreadable."""
    if len(body) < HEAD.size or body[0] != MAGIC:
        raise BodyUnreadable("does not begin with the byte 0 and the id of a schema")
    return int(HEAD.unpack_from(body)[1]), body[HEAD.size :]


def head(schema_id: int) -> bytes:
    """Return the bytes by which a body names its schema."""
    return HEAD.pack(MAGIC, schema_id)


_unknown: dict[tuple[str, int], float] = {}  # until when an id is not asked for, the first to be asked for first


@functools.lru_cache(SCHEMAS_MAX)
def schema_of_id(registry: str, schema_id: int) -> str:
    """Return the text of a schema.

    Raises:
        BodyUnreadable: the registry lacks it, or lacks so many ids that it is not asked for more. ConfigError,
            ConnectionLost: as `_ask`.
    """
    now = time.monotonic()
    while _unknown and _unknown[first := next(iter(_unknown))] <= now:
        del _unknown[first]
    place = (registry, schema_id)
    if place not in _unknown and len(_unknown) >= UNKNOWN_MAX:
        raise BodyUnreadable(f"schema {schema_id} is not asked for: {UNKNOWN_MAX} others are not in the registry")
    answer = None if place in _unknown else _ask(registry, f"/schemas/ids/{schema_id}")
    if answer is None:
        _unknown.setdefault(place, now + UNKNOWN_S)
        raise BodyUnreadable(f"schema {schema_id} is not in the registry")
    return str(_field(answer, "schema", registry))


def latest_schema(registry: str, subject: str) -> str:
    """Return the newest schema of a subject. Raises ConfigError, ConnectionLost."""
    answer = _ask(registry, f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/latest")
    if answer is None:
        raise ConfigError(f"{registry} has no subject {subject}", key="subject")
    return str(_field(answer, "schema", registry))


def id_of_schema(registry: str, subject: str, schema: str) -> int:
    """Return the id of a schema, which is registered if it is new. Raises ConfigError, ConnectionLost."""
    path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions"
    answer = _ask(registry, path, {"schema": schema})
    if answer is None:
        raise ConfigError(f"{registry} has no subjects", key="registry")
    return int(_field(answer, "id", registry))


def _field(answer: Any, name: str, registry: str) -> Any:
    """Return a field of an answer. Raises ConnectionLost: it is that of another server, of a proxy for example."""
    try:
        return answer[name]
    except (LookupError, TypeError) as error:
        raise ConnectionLost(f"{registry} answers no {name}: {str(answer)[:500]}") from error


def _ask(registry: str, path: str, body: dict[str, str] | None = None) -> Any:
    """Return the answer; None: the registry does not have it.

    Raises:
        ConfigError: the address is wrong, or the registry refuses. ConnectionLost: a later request may be answered.
    """
    if "@" in registry:  # errors and logs name the address
        raise ConfigError(f"must not hold a password: set {USER_INFO}=user:password on every node", key="registry")
    url = registry.rstrip("/") + path
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise ConfigError(f'"{registry}" is no address such as http://host:8081', key="registry")
    request = urllib.request.Request(url, None if body is None else json.dumps(body).encode())
    request.add_header("Content-Type", MEDIA_TYPE)
    if user := os.environ.get(USER_INFO):
        # Unredirected: a redirect must not carry the password to another host.
        request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(user.encode()).decode()}")
    try:
        status, text = _answer(request)
    except (ValueError, http.client.InvalidURL) as error:
        raise ConfigError(f"{url} cannot be asked: {error}") from error
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionLost(f"{url} does not answer: {error}") from error
    if status == HTTPStatus.NOT_FOUND and b'"error_code"' in text:
        return None
    if status != HTTPStatus.OK:
        kind = ConnectionLost if status in RETRIABLE_STATUSES else ConfigError
        raise kind(f"{url} answers {status}: {text[:500].decode(errors='replace')}")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # cut off, or the page of a proxy
        raise ConnectionLost(f"{url} answers no JSON: {error}") from error


def _answer(request: urllib.request.Request) -> tuple[int, bytes]:
    """Return status and body of an answer."""
    try:
        with urllib.request.urlopen(request, timeout=ASK_S) as answer:
            return HTTPStatus.OK, answer.read(ANSWER_MAX)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(ANSWER_MAX)
