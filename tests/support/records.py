"""A message on its way into a store: the fields of a record that its sender knows, without its place."""

from __future__ import annotations

import attrs

from rocketpy.message.host import Host, pack_host
from rocketpy.message.record import encode_record, record_size


@attrs.frozen(kw_only=True)
class Record:
    topic: str
    body: bytes
    born_timestamp_ms: int
    born_host: Host
    store_timestamp_ms: int
    store_host: Host
    properties: bytes = b""
    queue_id: int = 0
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0

    @property
    def size(self) -> int:
        """Bytes in the log."""
        return record_size(
            body_size=len(self.body),
            topic_size=len(self.topic.encode()),
            properties_size=len(self.properties),
            hosts_size=len(pack_host(self.born_host)) + len(pack_host(self.store_host)),
        )

    def encode(self, *, phy_offset: int, queue_offset: int) -> bytes:
        return encode_record(
            phy_offset=phy_offset,
            queue_offset=queue_offset,
            **attrs.asdict(self, recurse=False),
        )
