"""The options that both sources have: columns, bodies, sizes of batches."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rocketpy.message.compression import INFLATED_SIZE_MAX

from .columns import ddl_of, parse_columns
from .decoder import Decoder
from .options import boolean, one_of, option, size, text, whole
from .scan import BATCH_BYTES, BATCH_ROWS, Checks, Selection

ROWS_MAX = 1 << 16


@attrs.frozen(kw_only=True, slots=False)
class DecodingOptions:
    """The columns of a row, and the size of a batch of rows."""

    columns: str = option("columns", text, "std", "min, std, all, or names separated by commas")
    properties_as: str = option("propertiesAs", one_of("map", "json"), "map", "type of the column properties")
    decompress: bool = option("decompress", boolean, True, "bodies as the producer had them")
    transactional: str = option(
        "includeTransactional", one_of("committed", "all"), "committed", "all: with half and rolled back messages"
    )
    rows_max: int = option("maxRecordsPerBatch", whole(1, ROWS_MAX), BATCH_ROWS, "rows of an Arrow batch")
    bytes_max: int = option("maxBytesPerBatch", size(1, 1 << 30), BATCH_BYTES, "bytes of an Arrow batch, about")
    message_size_max: int = option(
        "maxMessageSize", size(1024, 1 << 30), INFLATED_SIZE_MAX, "a record that says it is larger is damaged"
    )

    def names(self, *, diagnostics: bool = False) -> tuple[str, ...]:
        """The chosen columns. Raises ConfigError."""
        return parse_columns(self.columns, diagnostics=diagnostics)

    def ddl(self, *, diagnostics: bool = False) -> str:
        return ddl_of(self.names(diagnostics=diagnostics), json_properties=self.properties_as == "json")

    def decoder(
        self,
        columns: tuple[str, ...],
        selection: Selection,
        *,
        crc: bool = False,
        place: bool = False,
        constants: Mapping[str, object],
    ) -> Decoder:
        """A decoder for these options."""
        return Decoder(
            columns,
            attrs.evolve(selection, committed_only=self.transactional == "committed"),
            Checks(
                crc=crc,
                place=place,
                record_size_max=self.message_size_max + (1 << 16) + 512,  # properties, topic, and the fixed part
                rows_max=self.rows_max,
                bytes_max=self.bytes_max,
                decompress=self.decompress,
            ),
            constants,
            self.properties_as == "json",
        )
