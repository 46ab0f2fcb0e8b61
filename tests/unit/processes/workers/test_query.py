"""A query worker, in this process: it answers from the store, shows what waits, follows settings, and leaves."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.config import BrokerConfig, BrokerSettings, MessageStoreConfig, ServerConfig
from rocketpy.native.core import lib
from rocketpy.processes.workers.request_server_main import QueryMain
from rocketpy.reactor.ring import STOP_LEAVE, RingReader, RingWriter
from rocketpy.reactor.topology import MANAGER, ReactorSizes, Topology
from rocketpy.reactor.worker_messages import ORIGIN, REPLY, WorkerMessage
from rocketpy.reactor.worker_spec import WorkerContext
from rocketpy.remoting.command import RemotingCommand
from rocketpy.store.control_block import ControlBlock
from tests.support.inherited import inherited
from tests.support.waiting import wait_until

CONNECTION = 0 << 56 | 4 << 32 | 1


def test_it_answers_follows_settings_and_leaves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    topology = Topology.create(ReactorSizes(codec_workers=0, query_workers=1, ring_bytes=65536))
    settings = BrokerSettings(
        broker=BrokerConfig(broker_name="b"),
        server=ServerConfig(listen_port=10911),
        store=MessageStoreConfig(store_path_root_dir=str(tmp_path), store_path_commit_log=str(tmp_path / "commitlog")),
    )
    control = ControlBlock(tmp_path / "control", settings.store.mapped_file_size_commit_log)
    block = topology.blocks["query-0"]
    main = QueryMain(inherited(settings, topology, control))
    ready = threading.Event()
    worker = threading.Thread(target=main, args=(WorkerContext("query-0", block, ready.set),), daemon=True)
    requests = RingWriter(topology.ring("selector-0", "query-0"))
    replies = RingReader(topology.ring("query-0", "selector-0"))
    told = RingWriter(topology.ring(MANAGER, "query-0"))
    origin = ORIGIN.write(connection=CONNECTION, received_ns=time.monotonic_ns())

    worker.start()
    assert ready.wait(20)
    assert told.write(WorkerMessage.SETTINGS, b"defaultQueryMaxNum=7\n")
    told.finish_batch()
    for code, fields in ((30, {"topic": "T", "queueId": "0"}), (33, {"offset": "77"}), (28, {})):
        request = RemotingCommand.request(code, ext_fields=fields)
        assert requests.write(WorkerMessage.COMMAND, origin + request.encode()[4:])
    requests.finish_batch()
    answers: list[RemotingCommand] = []

    def has_answered() -> bool:
        while (found := replies.read()) is not None:
            answers.append(RemotingCommand.decode(found[1][REPLY.size :]))
        return len(answers) == 3

    wait_until(has_answered, "three answers")
    assert requests.write(WorkerMessage.CLOSED, origin)
    requests.finish_batch()
    block.order(STOP_LEAVE)
    worker.join(20)
    assert not worker.is_alive()
    assert sorted(answer.code for answer in answers) == [0, 1, 3]
    assert block.counter(lib.RP_COUNT_WAITING) == block.counter(lib.RP_COUNT_WAITING_SINCE_NS) == 0
    assert block.counter(lib.RP_COUNT_LOOPS) > 0
    control.close()
    assert not caplog.records, "no message was a fault, the changed setting neither"
    for one in topology.blocks.values():
        os.close(one.doorbell)
    for pair in topology.handoffs.values():
        pair[0].close()
        pair[1].close()
