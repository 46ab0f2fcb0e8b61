"""Tables of texts: KV configuration (103, 219) and GET_BROKER_RUNTIME_INFO (28)."""

from __future__ import annotations

from .schema import Body, body, wire


@body
class KVTable(Body):
    table: dict[str, str] = wire("table", factory=dict)
