"""`dataReadAheadEnable=false` reaches the workers that read the log for clients, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import RequestCode
from rocketpy.remoting.command import RemotingCommand
from tests.support.broker import RunningBroker, running_broker
from tests.support.wire import Wire, read_all, send_request


def without_read_ahead(broker: RunningBroker) -> dict[str, bool]:
    """Return by worker whether its read-only mappings of the log are advised for random reads (`rr` of VmFlags)."""
    found = {}
    for name, pid in broker.workers().items():
        text = Path(f"/proc/{pid}/smaps").read_text()
        mappings = re.findall(r"^\S+ r--s .*/commitlog/\d{20}\n(?:\w+: .*\n)*?VmFlags:(.*)$", text, re.MULTILINE)
        if mappings:
            found[name] = all(" rr " in f"{flags} " for flags in mappings)
    return found


@pytest.mark.parametrize("is_on", [True, False])
def test_workers_that_read_for_clients_read_exactly(is_on: bool) -> None:
    with running_broker({"dataReadAheadEnable": str(is_on).lower(), "queryWorkers": "1"}) as broker:
        with Wire.open(broker.port) as wire:
            wire.ask(send_request("T", b"body"))
            (record,) = read_all(wire, "T", 1)
            fields = {"offset": str(record.phy_offset)}
            view = wire.ask(RemotingCommand.request(RequestCode.VIEW_MESSAGE_BY_ID, ext_fields=fields))
            assert view.code == 0 and b"body" in (view.body or b"")
        found = without_read_ahead(broker)
    readers = {name: found.pop(name) for name in list(found) if name.startswith(("selector", "query"))}
    assert readers == dict.fromkeys(readers, not is_on) and len(readers) == 2, readers
    assert found == dict.fromkeys(found, False) and "store" in found, "dispatch reads the log from one end to the other"
