"""Values to bodies and back: JSON, attrs and dataclasses (cattrs), pydantic, protobuf. Any object with these three
members is a serializer as well.

cattrs and pydantic are extras, imported when their serializer is made.
"""

from __future__ import annotations

import json
from typing import Any, Generic, Protocol, Self, TypeVar

from rocketpy.errors import ClientError

T = TypeVar("T")


class Serializer(Protocol[T]):
    """Makes bodies of values of one type, and values of bodies."""

    @property
    def content_type(self) -> str:
        """Media type, sent with each message; a consumer refuses another one."""

    def encode(self, value: T, /) -> bytes:
        """Return the body, which must not be empty. Whatever it raises, sending raises."""

    def decode(self, body: bytes, /) -> T:
        """Return the value. Whatever it raises makes the message undecodable."""


class JsonSerializer:
    """JSON as it is: dicts, lists, text, numbers. UTF-8, no blanks."""

    content_type = "application/json"

    def encode(self, value: Any) -> bytes:
        return _json(value)

    def decode(self, body: bytes) -> Any:
        return json.loads(body)


JSON = JsonSerializer()


class AttrsSerializer(Generic[T]):
    """JSON of an attrs class or a dataclass, nested ones and the types of cattrs' JSON converter included."""

    content_type = "application/json"

    def __init__(self, kind: type[T]) -> None:
        """Raises ClientError: cattrs is not installed."""
        try:
            from cattrs.preconf.json import make_converter
        except ImportError:
            raise _missing("AttrsSerializer", "cattrs", "attrs") from None
        self._kind = kind
        self._converter: Any = make_converter()

    def encode(self, value: T) -> bytes:
        return _json(self._converter.unstructure(value, self._kind))

    def decode(self, body: bytes) -> T:
        value: T = self._converter.structure(json.loads(body), self._kind)
        return value


class PydanticSerializer(Generic[T]):
    """JSON of a pydantic model, or of any type that pydantic checks: dataclasses, TypedDict, lists of them."""

    content_type = "application/json"

    def __init__(self, kind: type[T]) -> None:
        """Raises ClientError: pydantic is not installed."""
        try:
            from pydantic import TypeAdapter
        except ImportError:
            raise _missing("PydanticSerializer", "pydantic", "pydantic") from None
        self._adapter: Any = TypeAdapter(kind)

    def encode(self, value: T) -> bytes:
        body: bytes = self._adapter.dump_json(value)
        return body

    def decode(self, body: bytes) -> T:
        value: T = self._adapter.validate_json(body)
        return value


class ProtobufMessage(Protocol):
    """A class that protoc generates; the extra `protobuf` brings its imports."""

    def SerializeToString(self) -> bytes: ...

    @classmethod
    def FromString(cls, body: bytes, /) -> Self: ...


M = TypeVar("M", bound=ProtobufMessage)


class ProtobufSerializer(Generic[M]):
    """Messages of one generated class. One whose fields all have their defaults has no bytes, and cannot be sent."""

    content_type = "application/x-protobuf"

    def __init__(self, kind: type[M]) -> None:
        self._kind = kind

    def encode(self, value: M) -> bytes:
        return value.SerializeToString()

    def decode(self, body: bytes) -> M:
        return self._kind.FromString(body)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _missing(serializer: str, package: str, extra: str) -> ClientError:
    return ClientError(f"{serializer} needs {package}, which is not installed: pip install 'rocketpy-mq[{extra}]'")
