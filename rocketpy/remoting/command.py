"""RemotingCommand: the value that both directions of every connection exchange."""

from __future__ import annotations

from typing import Protocol, Self

import attrs

from rocketpy.codes import OUR_VERSION, LanguageCode, RequestCode, ResponseCode

from . import json_header, rocketmq_header
from .frame import HEADER_SIZE_MAX, Frame, HeaderFields, SerializeType, cut_frame, encode_frame

FLAG_RESPONSE = 0x1
FLAG_ONEWAY = 0x2
COMMAND_SIZE, FIELD_SIZE = 256, 128  # bytes of memory for a command and for each field, beside their texts
REMARK_BYTES_MAX = 4096
"""UTF-8 bytes of a response's remark; a longer one is cut, as remarks repeat what strangers sent."""


class EncodableHeader(Protocol):
    """A custom header: anything that knows its extFields (schema.py makes them)."""

    def to_ext_fields(self) -> dict[str, str]: ...

    def to_json(self) -> str:
        """The compact JSON of the extFields, names in order."""


def _fields_of(fields: dict[str, str] | EncodableHeader | None) -> dict[str, str] | None:
    return fields if fields is None or isinstance(fields, dict) else fields.to_ext_fields()


@attrs.define
class RemotingCommand:
    """A request or a response.

    `ext_fields` and `body` keep the difference between absent and empty: an absent map is None, and a body of no bytes
    does not exist on the wire. `opaque` is signed 32-bit; the connection that sends a request sets it.
    """

    code: int
    opaque: int = 0
    flag: int = 0
    language: LanguageCode | None = LanguageCode.PYTHON  # None: the peer named one that we do not know
    version: int = OUR_VERSION
    remark: str | None = None
    _ext_fields: dict[str, str] | EncodableHeader | None = attrs.field(
        default=None, alias="ext_fields", eq=_fields_of, repr=lambda fields: repr(_fields_of(fields))
    )
    body: bytes | None = attrs.field(default=None, repr=lambda body: f"<{len(body)} bytes>" if body else "None")
    serialize_type: SerializeType = SerializeType.JSON

    @classmethod
    def request(
        cls,
        code: int,
        header: EncodableHeader | None = None,
        body: bytes | None = None,
        *,
        ext_fields: dict[str, str] | None = None,
        oneway: bool = False,
    ) -> Self:
        """A request; `ext_fields` are ad-hoc fields beside those of `header`."""
        return cls(
            code=code,
            flag=FLAG_ONEWAY if oneway else 0,
            ext_fields=_merge(header, ext_fields),
            body=body,
        )

    @classmethod
    def oneway(
        cls,
        code: int,
        header: EncodableHeader | None = None,
        body: bytes | None = None,
        *,
        ext_fields: dict[str, str] | None = None,
    ) -> Self:
        """A request that must not be answered."""
        return cls.request(code, header, body, ext_fields=ext_fields, oneway=True)

    @classmethod
    def response(
        cls,
        code: int = ResponseCode.SUCCESS,
        remark: str | None = None,
        header: EncodableHeader | None = None,
        body: bytes | None = None,
        *,
        ext_fields: dict[str, str] | None = None,
    ) -> Self:
        """A response; `answering` sets its opaque before it is sent."""
        return cls(
            code=code,
            flag=FLAG_RESPONSE,
            remark=remark,
            ext_fields=_merge(header, ext_fields),
            body=body,
        )

    def answering(self, request: RemotingCommand) -> Self:
        """Make this the response to `request`: its opaque, its serialisation, the response bit. Returns self."""
        self.opaque = request.opaque
        self.serialize_type = request.serialize_type
        self.flag |= FLAG_RESPONSE
        return self

    @property
    def is_response(self) -> bool:
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & FLAG_ONEWAY)

    @property
    def name(self) -> str:
        """Name of the code, for logs: `PULL_MESSAGE`, `TOPIC_NOT_EXIST`, or the number when it has none."""
        known = ResponseCode if self.is_response else RequestCode
        try:
            return known(self.code).name
        except ValueError:
            return str(self.code)

    @property
    def held_size(self) -> int:
        """About how many bytes of memory it takes: a field costs more than its text."""
        fields = self.ext_fields or {}
        texts = sum(len(key) + len(value) for key, value in fields.items())
        return COMMAND_SIZE + len(self.body or b"") + len(self.remark or "") + texts + FIELD_SIZE * len(fields)

    @property
    def ext_fields(self) -> dict[str, str] | None:
        """The fields of the custom header, and others. A header that nobody looks at is written as it is."""
        if not isinstance(self._ext_fields, dict):
            self._ext_fields = _fields_of(self._ext_fields)
        return self._ext_fields

    @ext_fields.setter
    def ext_fields(self, fields: dict[str, str] | None) -> None:
        self._ext_fields = fields

    def ext_field(self, key: str) -> str | None:
        """An ad-hoc field, None when it is absent."""
        return None if self.ext_fields is None else self.ext_fields.get(key)

    def add_ext_field(self, key: str, value: str) -> None:
        fields = self.ext_fields
        if fields is None:
            fields = self._ext_fields = {}
        fields[key] = value

    def encode(self) -> bytes:
        """The whole frame.

        Raises:
            LocalProtocolError: a field does not fit its place on the wire.
        """
        given = self._ext_fields
        fields = self.code, self.language, self.version, self.opaque, self.flag, self.remark
        if self.serialize_type is SerializeType.ROCKETMQ:
            header = rocketmq_header.encode_header(HeaderFields(*fields, self.ext_fields))
        elif given is None or isinstance(given, dict):
            header = json_header.encode_header(HeaderFields(*fields, given))
        else:
            header = json_header.join_header(*fields, given.to_json())
        return encode_frame(self.serialize_type, header, self.body)

    def encode_response(self) -> tuple[bytes, Exception | None]:
        """The whole frame of a response, its remark cut to REMARK_BYTES_MAX. There is always a frame, because the peer
        waits for it.

        A response that does not fit a frame is replaced by a short SYSTEM_ERROR with its opaque; the reason is returned
        as well.
        """
        remark = bounded_remark(self.remark)
        try:
            return (self if remark is self.remark else attrs.evolve(self, remark=remark)).encode(), None
        except Exception as exc:
            short = RemotingCommand(
                code=ResponseCode.SYSTEM_ERROR,
                opaque=self.opaque,
                flag=FLAG_RESPONSE,
                remark=bounded_remark(f"the response cannot be sent: {exc}"),
                serialize_type=self.serialize_type,
            )
            return short.encode(), exc

    @classmethod
    def from_frame(cls, frame: Frame) -> Self:
        """Read a frame.

        Raises:
            HeaderInvalid: the header cannot be read; the connection is of no further use.
        """
        module = rocketmq_header if frame.serialize_type is SerializeType.ROCKETMQ else json_header
        fields = module.decode_header(frame.header)
        code, language, version, opaque, flag, remark, ext_fields = fields
        return cls(code, opaque, flag, language, version, remark, ext_fields, frame.body, frame.serialize_type)

    @classmethod
    def decode(cls, image: bytes | memoryview, *, header_size_max: int = HEADER_SIZE_MAX) -> Self:
        """Read exactly one whole frame, length field included.

        Raises:
            FrameTooLarge, HeaderInvalid: `image` is no frame.
        """
        return cls.from_frame(cut_frame(image, header_size_max=header_size_max))


def bounded_remark(remark: str | None) -> str | None:
    """`remark` with at most REMARK_BYTES_MAX bytes of UTF-8, cut between characters; itself when it has no more."""
    if remark is None or len(remark) * 4 <= REMARK_BYTES_MAX:
        return remark
    raw = remark[: REMARK_BYTES_MAX + 1].encode("utf-8", "replace")
    return remark if len(raw) <= REMARK_BYTES_MAX else raw[:REMARK_BYTES_MAX].decode("utf-8", "ignore")


def _merge(
    header: EncodableHeader | None, ext_fields: dict[str, str] | None
) -> dict[str, str] | EncodableHeader | None:
    if header is None:
        return None if ext_fields is None else dict(ext_fields)
    return header.to_ext_fields() | ext_fields if ext_fields else header
