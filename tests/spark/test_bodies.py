"""Columns from bodies and back: JSON, Avro and Protobuf; the wire format of registries; reasons for bad rows."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any, ClassVar

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

import rocketpy.spark
from rocketpy.client import Message, ProducerOptions
from rocketpy.client.sync import Producer
from rocketpy.errors import ConfigError, ConnectionLost, RocketError
from rocketpy.spark import bodies
from rocketpy.spark.bodies import registry
from rocketpy.spark.bodies.avro import AvroSchema
from rocketpy.spark.bodies.formats import decoded, format_of
from rocketpy.spark.bodies.protobuf import ProtobufSchema, indexes_of, without_indexes
from rocketpy.spark.bodies.registry import BodyUnreadable
from rocketpy.spark.bodies.types import ddl_of, plain
from rocketpy.spark.jobs.queries import Pipeline
from tests.support.broker import RunningBroker
from tests.support.readers import readable, wait_for_readers

NOON = datetime.datetime(2026, 11, 29, 12, 0, 0, 123000, tzinfo=datetime.UTC)
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
            {"name": "sku", "type": "string"}, {"name": "count", "type": "int"}]}}},
        {"name": "labels", "type": {"type": "map", "values": "double"}},
        {"name": "first", "type": ["Line", "null"]},
    ],
}  # fmt: skip
TEXT = json.dumps(ORDER)
ROW: dict[str, Any] = {
    "id": 7,
    "note": None,
    "at": NOON,
    "price": decimal.Decimal("12.50"),
    "key": "k",
    "lines": [{"sku": "a", "count": 2}],
    "labels": {"x": 1.5},
    "first": {"sku": "b", "count": 1},
}
DDL = (
    "struct<`id`: bigint, `note`: string, `at`: timestamp, `price`: decimal(10,2), `key`: string, "
    "`lines`: array<struct<`sku`: string, `count`: int>>, `labels`: map<string,double>, "
    "`first`: struct<`sku`: string, `count`: int>>"
)


def written(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


# --- Avro -------------------------------------------------------------------------------------------------------------


def test_avro_is_what_its_library_writes() -> None:
    schema = AvroSchema(TEXT)
    assert ddl_of(schema.arrow) == DDL
    data = written(ORDER, ROW)
    assert schema.decode(data) == ROW
    assert schema.encode(plain(pa.array([ROW], schema.arrow).to_pylist()[0], schema.arrow)) == data


def test_bodies_that_are_no_avro_say_why() -> None:
    schema = AvroSchema(TEXT)
    data = written(ORDER, ROW)
    for bad, reason in ((data[:-1], "is no Avro"), (data + b"x", "1 bytes follow the value"), (b"", "is no Avro")):
        with pytest.raises(BodyUnreadable, match=reason):
            schema.decode(bad)
    with pytest.raises(ValueError, match="does not fit the schema"):
        schema.encode({"id": "x"})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is no schema of Avro"),
        ('{"type": "record", "name": "A", "fields": [{"name": "a", "type": "B"}]}', "is no schema of Avro"),
        ('"long"', "is no record"),
        ('{"type": "record", "name": "A", "fields": [{"name": "a", "type": ["int", "string"]}]}', r"schema\.a is a un"),
        ('{"type": "record", "name": "A", "fields": [{"name": "a", "type": ["null", "A"]}]}', r"schema\.a is A, which"),
    ],
)
def test_schemas_that_spark_cannot_have(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        AvroSchema(text)


# --- Protobuf ---------------------------------------------------------------------------------------------------------

FIELD = descriptor_pb2.FieldDescriptorProto


def descriptor_set() -> bytes:
    """Of a file whose second message is the order: syntax 3, an optional, an enum, a list, a map, a time."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    time = descriptor_pb2.FileDescriptorProto(
        name="google/protobuf/timestamp.proto", package="google.protobuf", syntax="proto3"
    )
    stamp = time.message_type.add(name="Timestamp")
    stamp.field.add(name="seconds", number=1, type=FIELD.TYPE_INT64, label=FIELD.LABEL_OPTIONAL)
    stamp.field.add(name="nanos", number=2, type=FIELD.TYPE_INT32, label=FIELD.LABEL_OPTIONAL)
    line = file.message_type.add(name="Line")
    line.field.add(name="sku", number=1, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL)
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NEW", number=0)
    kind.value.add(name="PAID", number=1)
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=FIELD.TYPE_UINT64, label=FIELD.LABEL_OPTIONAL)
    order.field.add(name="kind", number=2, type=FIELD.TYPE_ENUM, type_name=".shop.Kind", label=FIELD.LABEL_OPTIONAL)
    order.field.add(name="lines", number=3, type=FIELD.TYPE_MESSAGE, type_name=".shop.Line", label=FIELD.LABEL_REPEATED)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=FIELD.TYPE_INT32, label=FIELD.LABEL_OPTIONAL)
    of_entry = ".shop.Order.CountsEntry"
    order.field.add(name="counts", number=4, type=FIELD.TYPE_MESSAGE, type_name=of_entry, label=FIELD.LABEL_REPEATED)
    order.oneof_decl.add(name="_note")
    order.field.add(
        name="note", number=5, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL, oneof_index=0, proto3_optional=True
    )
    stamp_name = ".google.protobuf.Timestamp"
    order.field.add(name="at", number=6, type=FIELD.TYPE_MESSAGE, type_name=stamp_name, label=FIELD.LABEL_OPTIONAL)
    order.field.add(name="raw", number=7, type=FIELD.TYPE_BYTES, label=FIELD.LABEL_OPTIONAL)
    return bytes(descriptor_pb2.FileDescriptorSet(file=[time, file]).SerializeToString())


FULL = {
    "id": 2**64 - 1,
    "kind": "PAID",
    "lines": [{"sku": "a"}, {"sku": ""}],
    "counts": {"x": 1},
    "note": "",
    "at": NOON,
    "raw": b"\0\1",
}


def test_protobuf_there_and_back() -> None:
    schema = ProtobufSchema(descriptor_set(), "shop.Order")
    assert ddl_of(schema.arrow) == (
        "struct<`id`: decimal(20,0), `kind`: string, `lines`: array<struct<`sku`: string>>, "
        "`counts`: map<string,int>, `note`: string, `at`: timestamp, `raw`: binary>"
    )
    data = schema.encode(FULL)
    assert schema.decode(data) == FULL | {"counts": [("x", 1)]}
    array = decoded(pa.array([data]), schema.decode, schema.arrow)
    (row,) = array.field("value").to_pylist()
    assert plain(row, schema.arrow) == FULL, "and through Arrow"
    empty = schema.decode(b"")
    assert empty["note"] is None and empty["at"] is None and (empty["id"], empty["kind"]) == (0, "NEW")
    with pytest.raises(BodyUnreadable, match=r"is no shop\.Order"):
        schema.decode(b"\x08")
    with pytest.raises(ValueError, match=r"does not fit shop\.Order"):
        schema.encode({"nothing": 1})
    with pytest.raises(ConfigError, match=r"has no message shop\.Ordr"):
        ProtobufSchema(descriptor_set(), "shop.Ordr")


def test_the_place_of_a_message_type_is_in_the_body() -> None:
    assert indexes_of(ProtobufSchema(descriptor_set(), "shop.Line")) == b"\0"
    assert indexes_of(ProtobufSchema(descriptor_set(), "shop.Order")) == b"\2\2", "one number, zigzag: the second type"
    assert without_indexes(b"\0rest") == without_indexes(b"\2\2rest") == without_indexes(b"\4\2\x80\1rest") == b"rest"
    for bad in (b"", b"\2", b"\4\2\x80"):
        with pytest.raises(BodyUnreadable, match="ends within"):
            without_indexes(bad)


# --- registries -------------------------------------------------------------------------------------------------------


class Registry(BaseHTTPRequestHandler):
    """The part of the API that is used, on schemas in memory: no registry runs without Kafka."""

    schemas: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        if self.path == "/subjects/orders-value/versions/latest" and self.schemas:
            self._answer({"schema": self.schemas[-1]})
        elif self.path.startswith("/schemas/ids/") and int(self.path[13:]) <= len(self.schemas):
            self._answer({"schema": self.schemas[int(self.path[13:]) - 1]})
        else:
            self._answer({"error_code": 40403}, 404)

    def do_POST(self) -> None:
        schema = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["schema"]
        if schema not in self.schemas:
            self.schemas.append(schema)
        self._answer({"id": self.schemas.index(schema) + 1})

    def _answer(self, value: Any, status: int = 200) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("OneRegistry", (Registry,), {"schemas": []}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def record(*fields: object) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, *fields]})


def doubling(leaf: object, levels: int = 20) -> object:
    """A schema of a few hundred bytes: each type has two fields of the one before."""
    kind = leaf
    for level in range(levels):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"R{level - 1}" if level else leaf}]
        kind = {"type": "record", "name": f"R{level}", "fields": fields}
    return kind


EMPTY = {"type": "record", "name": "Empty", "fields": []}
CHAIN = [{"type": "record", "name": f"R{n}", "fields": [{"name": "a", "type": f"R{n - 1}" if n else "int"}]}
         for n in range(2_000)]  # fmt: skip
DEEP = '{"type": "array", "items":' * 600 + '"long"' + "}" * 600
NOTHINGS = {"type": "array", "items": doubling("null")}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ('syntax = "proto3"; message Order {}', "was written with another kind of schema"),
        ('{"type": "object", "properties": {}}', "was written with another kind of schema"),
        (record({"name": "next", "type": ["null", "Order"]}), "contains itself: Order"),
        (record({"name": "n", "type": {"type": "array", "items": "null"}}), "arrays of nothing"),
        (record({"name": "n", "type": {"type": "array", "items": EMPTY}}), "arrays of nothing"),
        pytest.param(record({"name": "n", "type": doubling("long")}), "more than 10000 types", id="doubling"),
        pytest.param(record({"name": "n", "type": NOTHINGS}), "more than 10000 types", id="doubling nothing"),
        pytest.param(json.dumps(CHAIN), "more than 10000 types", id="chain"),
        pytest.param(DEEP, "was written with another kind of schema", id="deep"),
    ],
)
def test_a_body_that_names_a_schema_of_another_kind_is_a_bad_row(schema: str, reason: str) -> None:
    """The writer of a message chooses its schema: the query failed, or its process crashed or ate all memory.
    Fault: A small or deep schema of Avro in the registry stopped a stream for ever.
    """
    with pytest.raises(BodyUnreadable, match=reason):
        AvroSchema(record()).decode(b"\2" + b"\xfe" * 8, schema)


def test_a_schema_of_the_writer_may_have_what_columns_have_not() -> None:
    colour = {"type": "enum", "name": "Colour", "symbols": ["RED"]}
    both = ({"name": "a", "type": colour}, {"name": "b", "type": ["null", "Colour", "string"]})
    assert AvroSchema(record()).decode(b"\2\0\2\0", record(*both)) == {"id": 1}


def test_an_id_that_is_not_known_is_not_asked_for_by_each_row(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    ask = registry._ask
    monkeypatch.setattr(registry, "_ask", lambda *place: (asked.append(place[1]), ask(*place))[1])
    for _ in range(3):
        with pytest.raises(BodyUnreadable, match="schema 1 is not in the registry"):
            registry.schema_of_id(address, 1)
    assert asked == ["/schemas/ids/1"]
    registry.id_of_schema(address, "orders-value", record())
    monkeypatch.setattr(registry, "UNKNOWN_S", 0.0)
    monkeypatch.setattr(registry, "_unknown", {})
    assert registry.schema_of_id(address, 1) == record()


def test_bodies_of_random_ids_cost_the_registry_a_bounded_number_of_requests(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Schemas that are known still count.
    Fault: Each message with a random schema id cost the registry a request."""
    asked: list[str] = []
    ask = registry._ask
    known = registry.id_of_schema(address, "orders-value", record())
    assert registry.schema_of_id(address, known) == record()
    monkeypatch.setattr(registry, "_ask", lambda *place: (asked.append(place[1]), ask(*place))[1])
    monkeypatch.setattr(registry, "_unknown", {})
    monkeypatch.setattr(registry, "UNKNOWN_MAX", 3)
    for schema_id in (7, 8, 9, 7, 9):
        with pytest.raises(BodyUnreadable, match=f"schema {schema_id} is not in the registry"):
            registry.schema_of_id(address, schema_id)
    for schema_id in (10, 11, 10):
        with pytest.raises(BodyUnreadable, match=f"schema {schema_id} is not asked for: 3 others are not in the reg"):
            registry.schema_of_id(address, schema_id)
    assert registry.schema_of_id(address, known) == record()
    assert asked == [f"/schemas/ids/{schema_id}" for schema_id in (7, 8, 9)]
    registry._unknown[address, 7] = 0.0  # its time has passed
    with pytest.raises(BodyUnreadable, match="schema 10 is not in the registry"):
        registry.schema_of_id(address, 10)
    assert asked.pop() == "/schemas/ids/10"


def test_a_redirect_does_not_carry_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(registry.USER_INFO, "user:password")
    told: list[str | None] = []

    class Redirecting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told.append(self.headers["Authorization"])
            self.send_response(302)
            self.send_header("Location", there + self.path)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not logged."""

    class Stranger(Registry):
        schemas: ClassVar[list[str]] = [record()]

        def do_GET(self) -> None:
            told.append(self.headers["Authorization"])
            super().do_GET()

    with (
        ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as stranger,
        ThreadingHTTPServer(("127.0.0.1", 0), Redirecting) as first,
    ):
        there = f"http://127.0.0.1:{stranger.server_address[1]}"
        for server in (stranger, first):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        assert registry.schema_of_id(f"http://127.0.0.1:{first.server_address[1]}", 1) == record()
        for server in (stranger, first):
            server.shutdown()
    assert told == ["Basic dXNlcjpwYXNzd29yZA==", None]


def test_a_registry_that_cannot_be_asked_is_one_line(address: str) -> None:
    with pytest.raises(ConfigError, match="has no subject orders-value"):
        registry.latest_schema(address, "orders-value")
    with pytest.raises(BodyUnreadable, match="schema 9 is not in the registry"):
        registry.schema_of_id(address, 9)
    with pytest.raises(ConnectionLost, match=r"http://127\.0\.0\.1:1/subjects/s/versions/latest does not answer"):
        registry.latest_schema("http://127.0.0.1:1", "s")
    with pytest.raises(ConfigError, match=r"http://127\.0\.0\.1:x/schemas/ids/1 cannot be asked"):
        registry.schema_of_id("http://127.0.0.1:x", 1)
    with pytest.raises(ConfigError, match="is no address such as"):
        registry.latest_schema("file:///etc", "s")
    for bad in (b"", b"\0\0\0\0", b"\1\0\0\0\1x"):
        with pytest.raises(BodyUnreadable, match="does not begin with the byte 0"):
            registry.split(bad)
    assert registry.split(registry.head(258) + b"x") == (258, b"x") == (258, b"x")


@pytest.mark.parametrize("address", ["http://user:secret@h:1", "http://user:sec#ret@h:1", "user:secret@h"])
def test_a_password_in_the_address_of_a_registry_is_refused_and_not_shown(address: str) -> None:
    """Fault: Errors of a registry showed the password in its address."""
    with pytest.raises(ConfigError, match="registry: must not hold a password") as caught:
        registry.latest_schema(address, "s")
    assert "sec" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"HTTP/1.0 503 Service Unavailable\r\n\r\n", ConnectionLost),
        (b"HTTP/1.0 401 Unauthorized\r\n\r\n", ConfigError),
        (b"HTTP/1.0 404 Not Found\r\n\r\ndefault backend - 404", ConnectionLost),
        (b"HTTP/1.0 200 OK\r\n\r\nno JSON", ConnectionLost),
        (b'HTTP/1.0 200 OK\r\n\r\n{"status": "ok"}', ConnectionLost),
        (b"HTTP/1.0 200 OK\r\n\r\n[]", ConnectionLost),
        (b"HTTP/1.0 200 OK\r\n\r\n" + b"[" * 100_000, ConnectionLost),
        (b'HTTP/1.0 200 OK\r\nContent-Length: 100\r\n\r\n{"schema": "', ConnectionLost),
        (b"no HTTP\r\n", ConnectionLost),
        (b"", ConnectionLost),
    ],
)
def test_a_registry_that_is_away_is_told_from_one_that_refuses(answer: bytes, kind: type[RocketError]) -> None:
    """Fault: A query gave up for good when its registry did not answer for a moment."""

    class Answering(StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            self.wfile.write(answer)

    with ThreadingTCPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(kind):
            registry.schema_of_id(f"http://127.0.0.1:{server.server_address[1]}", 1)
        server.shutdown()


def test_formats_of_a_file(tmp_path: Path) -> None:
    assert format_of({"format": "json", "schema": "a int"}) == bodies.Json("a int")
    assert format_of({"format": "avro", "schema": "o.avsc"}) == bodies.Avro("o.avsc")
    for options, reason in (
        ({"format": "xml"}, '"xml" is none of json, avro, protobuf'),
        ({"format": "avro", "shema": "x"}, 'unknown key shema; did you mean "schema"'),
        ({"format": "protobuf", "schema": "x"}, "protobuf needs more"),
    ):
        with pytest.raises(ConfigError, match=reason):
            format_of(options)
    for form in (bodies.Avro(tmp_path / "no.avsc"), bodies.Protobuf(tmp_path / "no.desc", "a.B")):
        with pytest.raises(ConfigError, match=r"schema.*cannot be read"):
            form.decoder()
    with pytest.raises(ConfigError, match="or registry and subject"):
        bodies.Avro().decoder()


def test_a_value_that_no_column_holds_is_a_bad_row() -> None:
    kind = pa.struct([("n", pa.int32())])
    array = decoded(pa.array([b"1", b"2", None]), lambda body: {"n": int(body) << 31 if body == b"2" else 1}, kind)
    assert array.field("value").to_pylist() == [{"n": 1}, None, None]
    reasons = array.field("bodyError").to_pylist()
    assert reasons[0] is None and reasons[1].startswith("does not fit the column: ") and reasons[2] == "is null"


# --- in Spark ---------------------------------------------------------------------------------------------------------


def test_every_format_in_spark(spark: Any, tmp_path: Path, address: str) -> None:
    """Each format encodes rows, decodes them, and names what is wrong with others."""
    (tmp_path / "order.avsc").write_text(TEXT)
    (tmp_path / "order.desc").write_bytes(descriptor_set())
    registry.id_of_schema(address, "orders-value", json.dumps({**ORDER, "fields": ORDER["fields"][:1]}))  # type: ignore[index]
    with_registry = bodies.Avro(tmp_path / "order.avsc", registry=address, subject="orders-value")
    columns = "id bigint, at timestamp"
    forms = [
        bodies.Json(columns),
        bodies.Json(columns, with_id=True, schema_id=3),
        bodies.Avro(tmp_path / "order.avsc"),
        with_registry,
        bodies.Protobuf(tmp_path / "order.desc", "shop.Order"),
        bodies.Protobuf(tmp_path / "order.desc", "shop.Order", with_id=True, schema_id=9),
    ]
    full = "cast(null AS string) AS note, at, 12.50BD AS price, 'k' AS key, "
    full += "array(struct('a' AS sku, 2 AS count)) AS lines, map('x', 1.5D) AS labels, "
    full += "struct('b' AS sku, 1 AS count) AS first"
    rows = spark.range(3).selectExpr("id", "timestamp_millis(1764417600123 + id) AS at")
    for form in forms:
        value = "struct(id, at)"
        if isinstance(form, bodies.Avro):
            value = f"struct(id, {full})"
        made = bodies.encode(rows, form, value).select("body").union(spark.sql("SELECT X'07'"))
        found = bodies.decode(made.coalesce(1), form).select("value.id", "value.at", "bodyError").collect()
        assert [int(row.id) for row in found[:3]] == [0, 1, 2], form
        assert [row.at.microsecond for row in found[:3]] == [123000, 124000, 125000], form
        assert [row.bodyError for row in found[:3]] == [None] * 3
        assert found[3].id is None and found[3].bodyError is not None, form
    newest = bodies.decode(
        spark.createDataFrame([(registry.head(2) + written(ORDER, ROW),)], "body binary"),
        bodies.Avro(registry=address, subject="orders-value"),
    )
    assert newest.select("value.key", "value.lines").collect()[0].key == "k"


def test_the_wire_format_of_a_registry_passes_through_a_topic(
    spark: Any, broker: RunningBroker, tmp_path: Path, address: str
) -> None:
    """The sink writes the id of the schema that it registers; a reader also takes a body of an older schema."""
    older = record({"name": "note", "type": "string"})
    assert registry.id_of_schema(address, "orders-value", older) == 1
    (tmp_path / "order.avsc").write_text(record())
    form = bodies.Avro(tmp_path / "order.avsc", registry=address, subject="orders-value")
    where = {"nameServer": broker.namesrv, "topic": "Registered"}
    made = bodies.encode(spark.range(3), form, "struct(id)").select("body")
    made.write.format("rocketmq").mode("append").options(**where).save()
    with Producer("makers", ProducerOptions(name_servers=broker.namesrv, send_timeout=10)) as producer:
        whole = registry.head(1) + written(json.loads(older), {"id": 7, "note": "n"})
        headless = written(json.loads(record()), {"id": 8})
        readable([producer.send(Message("Registered", body)) for body in (whole, headless)])
    frame = rocketpy.spark.read(spark, columns="body", **where)
    heads = Counter(bytes(row.body)[:5] for row in frame.collect())
    assert (heads[registry.head(2)], heads[registry.head(1)]) == (3, 1)
    found = bodies.decode(frame, form).select("value.id", "bodyError").collect()
    assert sorted(row.id for row in found if row.bodyError is None) == [0, 1, 2, 7]
    (bad,) = (row for row in found if row.bodyError is not None)
    assert bad.id is None and "does not begin with the byte 0" in bad.bodyError


QUERY = """
[query.{name}]
source = {{ nameServer = "{namesrv}", topic = "Orders", startingOffsets = "earliest", columns = "body" }}
decode = {{ format = "avro", schema = "{directory}/order.avsc" }}
sql = "{sql}"
encode = {{ format = "json" }}
sink = {{ format = "rocketmq", nameServer = "{namesrv}", topic = "{name}" }}
checkpoint = "{directory}/{name}"
trigger = "available now"
"""


def test_a_query_of_a_file_decodes_and_encodes(spark: Any, broker: RunningBroker, tmp_path: Path) -> None:
    """Rows in Avro become JSON of another topic, a bad one with its reason."""
    (tmp_path / "order.avsc").write_text(TEXT)
    with Producer("makers", ProducerOptions(name_servers=broker.namesrv, send_timeout=10)) as producer:
        for body in (written(ORDER, ROW), b"bad", written(ORDER, ROW | {"id": 8})):
            readable([producer.send(Message("Orders", body, tags="eu"))])
    sql = "SELECT struct(value.id, hex(body) AS body, bodyError) AS value FROM {source}"
    text = QUERY.format(name="Copies", sql=sql, namesrv=broker.namesrv, directory=tmp_path)
    (tmp_path / "p.toml").write_text(text)
    (query,) = Pipeline.read(tmp_path / "p.toml").queries
    query.start(spark).awaitTermination()
    wait_for_readers(broker.port)
    copies = rocketpy.spark.read(spark, nameServer=broker.namesrv, topic="Copies", columns="body").collect()
    bad, *good = sorted((json.loads(bytes(row.body)) for row in copies), key=lambda row: row.get("id", 0))
    assert [row["id"] for row in good] == [7, 8] and "bodyError" not in good[0]
    assert bytes.fromhex(bad["body"]) == b"bad" and bad["bodyError"].startswith("is no Avro of the schema")
    (tmp_path / "p.toml").write_text(text.replace('"avro"', '"arvo"'))
    with pytest.raises(ConfigError, match=r'\[query\.Copies\] decode.*"arvo" is none of json, avro, protobuf'):
        Pipeline.read(tmp_path / "p.toml")


def test_a_query_of_a_file_says_what_would_save_work(
    spark: Any, broker: RunningBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = QUERY.format(name="Wide", sql="SELECT body FROM {source}", namesrv=broker.namesrv, directory=tmp_path)
    lines = [line for line in text.splitlines() if "code = " not in line]
    (tmp_path / "p.toml").write_text("\n".join(lines).replace('columns = "body"', 'columns = "std"'))
    (query,) = Pipeline.read(tmp_path / "p.toml").queries
    query.start(spark).stop()
    assert "query Wide would read less: rocketmq reads 11 columns for 1: set the option columns=body" in caplog.text
