"""Replays: every archived message of the plan in its topic, each queue in order, over failures and repeated runs."""

from __future__ import annotations

import json
import shutil
import zlib
from array import array
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rocketpy.cli.command_line import cli
from rocketpy.errors import BrokerError, ConfigError, StoreError
from rocketpy.spark.cluster import CLUSTERS
from rocketpy.spark.jobs.archive import archive
from rocketpy.spark.jobs.compact import compact
from rocketpy.spark.jobs.replay import Replayed, parts, replay
from rocketpy.spark.jobs.replay.check import Compared, SliceFound, bitmap, compare, slices_to_check
from rocketpy.spark.jobs.replay.parts import RateLimit
from rocketpy.spark.jobs.replay.plan import Ledger, Part, Step, StepId, Wanted, read_step, write_step
from rocketpy.spark.options import parse_options
from rocketpy.spark.pulls import Slice
from rocketpy.spark.slices import read_slices
from rocketpy.spark.topic_options import TopicOptions
from rocketpy.store.files import file_name
from rocketpy.store.inspection.reader import StoreReader
from tests.spark.test_sink import load
from tests.support.broker import RunningBroker, running_broker
from tests.support.log_images import image_of, record
from tests.unit.store.test_java_store import unpack


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The 200 messages of a store of Java: 134 of A, 66 of B."""
    root = tmp_path_factory.mktemp("replay")
    unpack("clean", root / "s")
    archive(None, root / "s", root / "a", broker="b", split_bytes=3000)
    return root / "a"


def run(archived: Path, ledger: Path, broker: RunningBroker, wanted: Wanted, spark: Any = None) -> Replayed:
    return replay(spark, archived, ledger, wanted, {"nameServer": broker.namesrv})


def source_of(archived: Path) -> dict[tuple[str, int, int], Any]:
    records = StoreReader(archived.parent / "s").records()
    return {(record.topic, record.queue_id, record.queue_offset): record for record in records}


def test_a_replay_on_workers_is_complete_and_in_order(
    spark: Any, archived: Path, broker: RunningBroker, tmp_path: Path
) -> None:
    done = run(archived, tmp_path / "l", broker, Wanted(topics={}, into="All"), spark)
    assert done == Replayed(sent=200, planned=200, stored=200, missing=0, duplicates=0)
    source, orders = source_of(archived), dict[tuple[str, str], list[tuple[int, int, int]]]()
    for row in load(spark, broker, "All"):
        origin = row.properties
        record = source.pop((origin["ORIGIN_TOPIC"], int(origin["ORIGIN_QUEUE"]), int(origin["ORIGIN_OFFSET"])))
        assert bytes(row.body) == record.body and origin["ORIGIN_BROKER"] == "b" and origin["ORIGIN_MSG_ID"]
        assert f"KEYS\x01{row.keys}".encode() in record.properties
        queue = (origin["ORIGIN_TOPIC"], origin["ORIGIN_QUEUE"])
        orders.setdefault(queue, []).append((row.queueId, row.queueOffset, int(origin["ORIGIN_OFFSET"])))
    assert source == {}
    for places in orders.values():
        assert len({queue for queue, _, _ in places}) == 1
        assert [offset for _, _, offset in sorted(places)] == sorted(offset for _, _, offset in places)
    again = run(archived, tmp_path / "l", broker, Wanted(topics={}, into="All"), spark)
    assert again == Replayed(sent=0, planned=200, stored=200, missing=0, duplicates=0)


class Killed(BaseException):
    """A run ends here."""


@pytest.mark.parametrize("done_before", [0, 3])
def test_a_run_that_was_cut_short_goes_on(
    archived: Path, broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done_before: int
) -> None:
    """It dies when messages of a step are stored and the ledger does not say so: only that step is sent again, and its
    first copies are counted, also those that are before all that the ledger knows of.
    Fault: `pipeline replay` missed copies stored by a killed run."""
    write, steps, target = parts.write_step, list[int](), f"Again{done_before}"

    def dying(ledger: Path, identity: StepId, crcs: Any, step: Step) -> None:
        steps.append(step.rows)
        if len(steps) > done_before:
            raise Killed
        write(ledger, identity, crcs, step)

    with monkeypatch.context() as patched:
        patched.setattr(parts, "write_step", dying)
        with pytest.raises(Killed):
            run(archived, tmp_path / "l", broker, Wanted(topics={"A": target}))
    monkeypatch.setattr("rocketpy.spark.jobs.replay.check.SLICE_MESSAGES", 7)  # copies are in other slices
    done = run(archived, tmp_path / "l", broker, Wanted(topics={"A": target}))
    assert steps[-1] > 0
    assert done == Replayed(
        sent=134 - sum(steps[:-1]), planned=134, stored=134, missing=0, duplicates=steps[-1], changed=0
    )


def test_a_master_without_its_slave(archived: Path, tmp_path: Path) -> None:
    """Fault: A replay to a SYNC_MASTER without a slave reported messages as stored that only the master had."""
    wanted = Wanted(topics={"B": "Alone"})
    with running_broker({"brokerRole": "SYNC_MASTER"}) as broker:
        with pytest.raises(BrokerError, match=r"SLAVE_NOT_AVAILABLE.*start the slave, or set onNotStoredOk=accept"):
            run(archived, tmp_path / "l", broker, wanted)
        connection = {"nameServer": broker.namesrv, "onNotStoredOk": "accept"}
        done = replay(None, archived, tmp_path / "l", wanted, connection)
    assert (done.stored, done.missing) == (66, 0) and done.duplicates > 0


def test_messages_that_are_not_there_are_missing(archived: Path, broker: RunningBroker, tmp_path: Path) -> None:
    wanted = Wanted(topics={"B": "Some"})
    assert run(archived, tmp_path / "l", broker, wanted).is_sound
    step = min((tmp_path / "l").glob("0*.json"))
    found = json.loads(step.read_text())
    step.write_text(json.dumps(found | {"rows": found["rows"] + 1}))
    done = run(archived, tmp_path / "l", broker, wanted)
    assert (done.stored, done.missing, done.duplicates, done.is_sound) == (66, 1, 0, False)
    step.write_text(json.dumps(found))
    crcs = step.with_suffix(".crc")
    crcs.write_bytes(bytes([crcs.read_bytes()[0] ^ 1]) + crcs.read_bytes()[1:])
    done = run(archived, tmp_path / "l", broker, wanted)
    assert (done.stored, done.missing, done.changed, done.is_sound) == (65, 1, 1, False)


def test_a_loss_and_a_duplicate_do_not_cancel(tmp_path: Path) -> None:
    """Row 3 is lost, rows 1 and 2 are twice: in one slice, and in two of them.
    Fault: `pipeline replay` missed a loss beside duplicates."""
    ledger = Ledger(tmp_path, parts=[Part(0, "T", "b", "T", 0, 1, ["file"])])
    write_step(tmp_path, (0, 0), array("I", range(5)), Step(5, []))
    slices = [SliceFound({(0, 0): bitmap({0, 1, 2})}, 1, 0), SliceFound({(0, 0): bitmap({2, 4})}, 0, 0)]
    assert compare(ledger, slices) == Compared(planned=5, stored=4, missing=1, duplicates=2, changed=0)


def test_a_damaged_file_of_an_archive_is_named(archived: Path, broker: RunningBroker, tmp_path: Path) -> None:
    shutil.copytree(archived, tmp_path / "a")
    path = min((tmp_path / "a").glob("topic=B/*/*.parquet"))
    path.write_bytes(b"no Parquet")
    with pytest.raises(StoreError, match=f"{path} is damaged, or is no Parquet file"):
        run(tmp_path / "a", tmp_path / "l", broker, Wanted(topics={"B": "Named"}))
    with pytest.raises(StoreError, match=f"{path} is damaged, or is no Parquet file"):
        compact(None, tmp_path / "a", "b")


def test_messages_that_no_client_may_send_do_not_end_a_replay(broker: RunningBroker, tmp_path: Path) -> None:
    """Producers of other kinds store them. A body may be larger than requests are: it was compressed.
    Fault: One archived message that no client may send ended every replay."""
    large = b"large" * (1 << 20)
    odd = b"blank\x01 \x02sep\x01a\x01b\x02\x01nameless\x02kept\x01yes\x02"
    records = [
        record("Odd", b"first", properties=odd),
        record("Odd", b""),
        record("Odd", b"two tags", properties=b"TAGS\x01a||b"),
        record("Odd", b"long", properties=b"long\x01" + b"x" * 32_700),
        record("Odd", zlib.compress(large), sys_flag=0x301),
        record("Odd", b"last"),
    ]
    (tmp_path / "s/commitlog").mkdir(parents=True)
    (tmp_path / "s/commitlog" / file_name(0)).write_bytes(image_of(records).data)
    archive(None, tmp_path / "s", tmp_path / "a", broker="b")
    done = run(tmp_path / "a", tmp_path / "l", broker, Wanted(topics={"Odd": "Even"}))
    assert done == Replayed(sent=3, planned=3, stored=3, missing=0, duplicates=0, refused=3) and not done.is_sound
    again = run(tmp_path / "a", tmp_path / "l", broker, Wanted(topics={"Odd": "Even"}))
    assert again == Replayed(sent=0, planned=3, stored=3, missing=0, duplicates=0, refused=3)
    options = parse_options(TopicOptions, {"nameServer": broker.namesrv, "topic": "Even"})
    cluster = CLUSTERS.get(options.client_options())
    slices = [Slice(queue, 0, bound.max_offset) for queue, bound in cluster.bounds(cluster.queues({"Even"})).items()]
    rows = [row for batch in read_slices(options, ("body", "properties"), slices) for row in batch.to_pylist()]
    assert {row["body"] for row in rows} == {b"first", large, b"last"}
    (first,) = [dict(row["properties"]) for row in rows if row["body"] == b"first"]
    assert first["kept"] == "yes" and not first.keys() & {"blank", "sep", ""}


def test_messages_that_were_there_before_are_not_read(archived: Path, broker: RunningBroker, tmp_path: Path) -> None:
    run(archived, tmp_path / "l", broker, Wanted(topics={"A": "Before"}))
    run(archived, tmp_path / "m", broker, Wanted(topics={"B": "Before"}))
    with Ledger.opened(tmp_path / "m", json.loads((tmp_path / "m/plan.json").read_text())["settings"], list) as ledger:
        assert sum(one.count for one in slices_to_check({"nameServer": broker.namesrv}, ledger)) == 66


def test_only_what_is_wanted_is_sent(archived: Path, broker: RunningBroker, tmp_path: Path) -> None:
    records = sorted(StoreReader(archived.parent / "s").records(), key=lambda record: record.phy_offset)
    middle_ms = records[100].store_timestamp_ms
    later = sum(record.store_timestamp_ms >= middle_ms and record.topic == "A" for record in records)
    wanted = Wanted(topics={"A": "Late"}, from_ms=middle_ms)
    assert run(archived, tmp_path / "l", broker, wanted).planned == later > 0
    assert run(archived, tmp_path / "m", broker, Wanted(topics={"A": "Keyed"}, keys=frozenset({"jkey1"}))).planned == 1
    first = Wanted(topics={"A": "First"}, where="queueOffset < 2 AND queueId = 0")
    assert run(archived, tmp_path / "n", broker, first).planned == 2


def test_a_replay_without_messages_needs_no_topic(archived: Path, broker: RunningBroker, tmp_path: Path) -> None:
    done = run(archived, tmp_path / "l", broker, Wanted(topics={"A": "Unmade"}, keys=frozenset({"nobody has it"})))
    assert done == Replayed(sent=0, planned=0, stored=0, missing=0, duplicates=0)


def test_a_ledger_is_of_one_replay(archived: Path, broker: RunningBroker, tmp_path: Path) -> None:
    run(archived, tmp_path / "l", broker, Wanted(topics={"A": "One"}, keys=frozenset({"jkey1"})))
    with pytest.raises(ConfigError, match="is the ledger of a replay with other settings"):
        run(archived, tmp_path / "l", broker, Wanted(topics={"A": "Two"}))
    settings = {"a": 1}
    with (
        Ledger.opened(tmp_path / "m", settings, lambda: ([], [])),
        pytest.raises(StoreError, match="another run is using this ledger"),
        Ledger.opened(tmp_path / "m", settings, list),
    ):
        pass


@pytest.mark.parametrize("text", ["[]", "{", '{"version": 2, "settings": {"a": 1}}', '{"version": 1}'])
def test_a_ledger_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(StoreError, match=r"plan\.json"), Ledger.opened(tmp_path, {"a": 1}, list):
        pass
    (tmp_path / "00000-000000.json").write_text("[]")
    with pytest.raises(StoreError, match=r"00000-000000\.json cannot be read: .* a new replay needs a new --ledger"):
        read_step(tmp_path, (0, 0))


def test_what_is_no_archive_is_named(tmp_path: Path, broker: RunningBroker, archived: Path) -> None:
    with pytest.raises(StoreError, match="is no archive"):
        run(tmp_path, tmp_path / "l", broker, Wanted(topics={}))
    with pytest.raises(ConfigError, match=r"has no topic No\. It has A, B"):
        run(archived, tmp_path / "l", broker, Wanted(topics={"A": "X", "No": "X"}))


def test_the_command(archived: Path, broker: RunningBroker, tmp_path: Path) -> None:
    command = ["pipeline", "replay", "--inline", str(archived), "-n", broker.namesrv, "--ledger", str(tmp_path / "l")]
    done = CliRunner().invoke(cli, [*command, "--topic", "B=ByCommand", "--rate", "100000"])
    assert done.exit_code == 0 and json.loads(done.stdout)["stored"] == 66
    wrong = CliRunner().invoke(cli, [*command, "--from", "soon"])
    assert wrong.exit_code == 2 and "soon is no time" in wrong.stderr
    wrong = CliRunner().invoke(cli, [*command, "--where", "a >"])
    assert wrong.exit_code == 2 and "is no SQL92 condition" in wrong.stderr


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("topic=Everything", "unknown option"),
        ("inFlight=1", "unknown option"),
        ("vipChannel=perhaps", "is neither true nor false"),
        ("tlsCaFile=/ca", "has no effect without tls"),
        ("credentialsFile", "is not KEY=VALUE"),
    ],
)
def test_options_are_checked_before_anything_is_sent(archived: Path, tmp_path: Path, option: str, message: str) -> None:
    """There is no broker at this address, and nothing waits for one.
    Fault: `pipeline replay --option topic=X` sent the messages of all topics to X."""
    command = ["pipeline", "replay", "--inline", str(archived), "-n", "127.0.0.1:1", "--ledger", str(tmp_path / "l")]
    wrong = CliRunner().invoke(cli, [*command, "--option", option])
    assert wrong.exit_code == 2 and message in wrong.stderr and not (tmp_path / "l").exists()


def test_the_pace_is_kept() -> None:
    now, slept = [50.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    limit = RateLimit(100.0, clock=lambda: now[0], sleep=sleep)
    for _ in range(5):
        limit.add(50)
    assert now[0] == pytest.approx(50.0 + 250 / 100)
    now[0] += 10  # sending was slow: nothing to wait for
    limit.add(100)
    assert len(slept) == 5
