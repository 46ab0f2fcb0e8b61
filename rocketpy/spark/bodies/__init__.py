"""Columns from the bodies of messages, and bodies from columns: JSON, Avro and Protobuf.

    from rocketpy.spark import bodies

    orders = bodies.decode(frame, bodies.Avro("order.avsc"))
    good = orders.where("bodyError IS NULL").select("value.*", "storeTimestamp")
    bad = orders.where("bodyError IS NOT NULL")
    bodies.encode(good, bodies.Json(), "struct(id, amount)").write.format("rocketmq")...

    formats     what a user chooses: Json, Avro, Protobuf
    registry    the wire format of schema registries (magic byte 0, 4 bytes id), and their HTTP API
    avro, protobuf      one schema: its type in Arrow, its decoder and encoder
    types       types of Arrow as Spark writes them

JSON is decoded by Spark's own functions. Those for Avro and Protobuf need jars, and fail or drop the reason at a bad
row; here the libraries fastavro and protobuf do it in functions over Arrow, in the Python workers.
Short: decode and encode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .formats import Avro, Json, Protobuf

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["Avro", "Json", "Protobuf", "decode", "encode"]

VALUE, ERROR = "value", "bodyError"
Format = Json | Avro | Protobuf


def decode(frame: DataFrame, form: Format, column: str = "body") -> DataFrame:
    """Add the columns `value`, a struct, and `bodyError`: the reason why a body could not be decoded, otherwise null.

    Raises:
        ConfigError: the schema cannot be read, or has a type that Spark does not have.
    """
    from pyspark.sql import functions as sql

    decoded = "_decoded"
    wide = frame.withColumn(decoded, form.decoder()(sql.col(column)))
    return wide.withColumns({VALUE: sql.col(decoded)[VALUE], ERROR: sql.col(decoded)[ERROR]}).drop(decoded)


def encode(frame: DataFrame, form: Format, value: Column | str = VALUE, column: str = "body") -> DataFrame:
    """Add a column of bodies, made of a struct. A row that does not fit the schema fails the query.

    Args:
        value: the struct, as a column or in SQL: `value`, `struct(id, amount)`.
    Raises:
        ConfigError: as of `decode`.
    """
    from pyspark.sql import functions as sql

    struct = sql.expr(value) if isinstance(value, str) else value
    return frame.withColumn(column, form.encoder()(struct))
