"""One run of hostile requests (hostile.py) against a broker and its name server, and what must hold afterwards."""

from __future__ import annotations

from pathlib import Path

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.remoting.command import RemotingCommand
from tests.support.broker import RunningBroker, disk_directory, running_broker
from tests.support.hostile import attack, repeat_known_attacks
from tests.support.wire import Wire, read_all, send_request, until

MARGIN_BYTES = 96 << 20  # over the whole tree: tables of what strangers made, allocators, histograms


def run_hostile_requests(seed: int, count: int, repeats: int) -> None:
    """Send `count` requests to each server, known attacks `repeats` times; see that nothing has happened to either."""
    print(f"seed {seed}")
    settings = {"namesrvAddr": ""}
    with disk_directory() as disk, running_broker(settings, store=Path(disk) / "store", is_new=True) as broker:
        serve(broker, f"Before{seed}")
        workers, before = broker.workers(), memory(broker)
        for port, probe in (
            (broker.port, RequestCode.GET_BROKER_CONFIG),
            (broker.namesrv_port, RequestCode.GET_BROKER_CLUSTER_INFO),
        ):
            repeat_known_attacks(port, repeats, probe)
            assert attack(port, seed, count, probe) > 0, f"seed {seed}: nobody was ever served"
        serve(broker, f"After{seed}")
        assert broker.workers() == workers, f"seed {seed}: a worker was replaced\n{broker.text()}"
        faults = [line for line in broker.text().splitlines() if "rocketpy.faults:" in line or "Traceback" in line]
        assert not faults, f"seed {seed}: faults were caught\n" + broker.text()
        until(lambda: memory(broker) < before + MARGIN_BYTES, f"seed {seed}: memory {before}, {memory(broker)}", 30)
        assert broker.stop() == 0, f"seed {seed}"


def serve(broker: RunningBroker, topic: str) -> None:
    """A normal send, pull and admin request; a normal question to the name server."""
    with Wire.open(broker.port) as wire:
        assert wire.ask(send_request(topic, b"hello")).code == ResponseCode.SUCCESS
        assert [record.body for record in read_all(wire, topic, 1)] == [b"hello"]
        stats = RemotingCommand.request(RequestCode.GET_TOPIC_STATS_INFO, ext_fields={"topic": topic})
        assert wire.ask(stats).code == ResponseCode.SUCCESS
    with Wire.open(broker.namesrv_port) as wire:
        route = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": topic})
        until(lambda: wire.ask(route).code == ResponseCode.SUCCESS, f"a route of {topic}")


def memory(broker: RunningBroker) -> int:
    """PSS of the tree in bytes, without pages of files."""
    assert broker.process is not None
    kib = 0
    for pid in (broker.process.pid, *broker.workers().values()):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                kib += int(line.split()[1])
    return kib * 1024
