"""Makes the texts of two runs comparable: what differs between any two runs becomes `#`, at its length.

Equal are two texts then line by line, up to spaces at the ends of lines.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

import attrs

from .admin_tools import Sent
from .brokers import AnyBroker

CHANGING = re.compile(
    r"\d{4}-\d\d-\d\d.\d\d:\d\d:\d\d(?:[,:]\d{3})?"  # times
    r"|\b20\d{12}(?:\d{3})?\b"  # times as digits
    r"|\b1[5-9]\d{11}\b"  # milliseconds
    r"|@[0-9a-f]{1,8}\b|Lambda\$\d+"  # hash codes and classes of Java objects
    r"|/tmp/rocketpy-[^/\s]+"  # directories of a run
    r"|(?<=V4_9_)\d"  # the version that a broker names
)
MEASURED = re.compile(
    r"(?<=CommitLog Offset:    )\d+"
    r"|(?<=commitLogOffset=)\d+|(?<=storeSize=)\d+|(?<=bodyCRC=)\d+|(?<=preparedTransactionOffset=)\d+"
    r"|(?<=physicOffset=)\d+|(?<=physicSize=)\d+|(?<=spentTimeMills=)\d+|(?<=Consume TPS: ).*"
    r"|\d+\], queueOffset=\d+\]"  # where a send went
    r"|(?<=istenPort) +=  \d+"
    r"|\b[0-9A-F]{32,56}\b"  # message ids; their length is that of a host's address
    r"|(?<=  )\d+ms +"  # a column as wide as its longest number
    r"|(?<=Message Body Path:).*"  # ours writes it only when told to
    r"|0x[0-9a-f]{16}"
    r"|(?<=clientId=)[\d.]+(?=@PID_CLIENT_INNER_TRACE)"  # an address of this machine
    r"|(?<=Tps) +: .*"  # as many averages as the broker is old
)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:E-?\d+)?|\bNaN\b")
BROKER, NAME_SERVER, OTHER = "BBBBB", "NNNNN", "#####"


@attrs.frozen
class Cluster:
    """The names of one run."""

    port: str
    name_server_port: str
    ids: dict[str, str]  # message id to its name

    @classmethod
    def of(cls, broker: AnyBroker, sent: list[Sent]) -> Cluster:
        ids = {one.unique_id: f"unique-{one.key}" for one in sent}
        ids |= {one.offset_id: f"offset-{one.key}" for one in sent}
        return cls(str(broker.port), str(broker.namesrv_port), ids)

    def comparable(self, text: str, *, figures: bool = False, any_order: bool = False) -> list[str]:
        """The lines of a text.

        Args:
            figures: numbers and the spaces around them differ, too.
            any_order: the order of the lines is one of a hash table.
        """
        for message_id, name in self.ids.items():
            text = text.replace(message_id, name.ljust(len(message_id), "."))
        text = re.sub(r"(?<=127\.0\.0\.1:)\d{5}\b", self._port, text)
        text = CHANGING.sub(lambda match: re.sub(r"\w", "#", match[0]), text)
        text = MEASURED.sub("#", text)
        text = re.sub(r"\](OffsetID:)", r"]\n\1", text)  # Java ends no line after the last track
        text = text.partition("#Consumer jstack#")[0]  # then comes what the threads of a consumer did just now
        lines = [line.rstrip() for line in text.rstrip().splitlines()]
        if figures:
            lines = [" ".join(re.sub(r"[#.]+", "#", NUMBER.sub("#", line)).split()) for line in lines]
        return sorted(lines) if any_order else lines

    def _port(self, match: re.Match[str]) -> str:
        return {self.port: BROKER, self.name_server_port: NAME_SERVER}.get(match[0], OTHER)


def differences(wanted: list[str], got: list[str]) -> Iterator[str]:
    """Lines of a comparison that are not equal, `-` wanted and `+` printed."""
    for line in difflib.unified_diff(wanted, got, lineterm="", n=0):
        if line[:3] not in ("---", "+++") and not line.startswith("@@"):
            yield line
