"""Archives of damaged logs, and of logs that a broker is writing: nothing is lost without an error."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rocketpy.errors import RecordCorrupt
from rocketpy.spark import store_source
from rocketpy.store.files import file_name
from tests.spark.test_archive import logged, rows, run
from tests.spark.test_segments import SEGMENT, make_store


def test_damage_where_a_run_goes_on_is_told(tmp_path: Path) -> None:
    """Not looked past, to the next record.
    Fault: A damaged record at the end of the previous archive run was skipped without an error."""
    places = make_store(tmp_path / "all", 60)
    shutil.copytree(tmp_path / "all", tmp_path / "s")
    last = sorted((tmp_path / "s/commitlog").iterdir())[-1]
    cut = places[-3] - int(last.name)
    last.write_bytes(last.read_bytes()[:cut])
    run(tmp_path / "s", tmp_path / "a")
    damaged = bytearray((tmp_path / "all/commitlog" / last.name).read_bytes())
    damaged[cut + 5] ^= 1
    last.write_bytes(damaged)
    with pytest.raises(RecordCorrupt, match="magic"):
        run(tmp_path / "s", tmp_path / "a")
    (manifest,) = run(tmp_path / "s", tmp_path / "a", skip_damage=True)
    assert rows(tmp_path / "a") == [row for row in logged(tmp_path / "all") if row[1] != places[-3]]
    assert sum(file.rows for file in manifest.bad) == 1


@pytest.mark.parametrize("is_live", [False, True])
def test_damage_in_the_last_file_does_not_end_the_log(tmp_path: Path, is_live: bool) -> None:
    """Beside a broker the unfinished record ends the log, but not one behind which consume queues name others.
    Fault: Damage in the last file of a log was taken for its end."""
    places = make_store(tmp_path / "s", 60, units=True)
    last = sorted((tmp_path / "s/commitlog").iterdir())[-1]
    damaged = bytearray(last.read_bytes())
    damaged[places[-5] - int(last.name) + 5] ^= 1
    last.write_bytes(damaged)
    with pytest.raises(RecordCorrupt, match="magic"):
        run(tmp_path / "s", tmp_path / "a", live_tail=is_live, split_bytes=1 << 20)


def test_what_a_broker_writes_meanwhile_is_read_up_to_where_the_log_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that is incomplete when it is looked at, and complete when a queue names it, is no damage."""
    places = make_store(tmp_path / "s", 60, units=True)
    last = sorted((tmp_path / "s/commitlog").iterdir())[-1]
    whole, cut = last.read_bytes(), places[-3] - int(last.name)
    last.write_bytes(whole[: cut + 20] + bytes(len(whole) - cut - 20))
    ends = store_source.end_by_queues

    def end_by_queues(root: Path) -> int | None:
        last.write_bytes(whole)
        return ends(root)

    monkeypatch.setattr(store_source, "end_by_queues", end_by_queues)
    run(tmp_path / "s", tmp_path / "a", live_tail=True)
    assert rows(tmp_path / "a") == logged(tmp_path / "s")


def test_zeros_where_a_queue_names_records_are_damage(tmp_path: Path) -> None:
    """In the last file zeros end the log, unless a consume queue names a record behind them.
    Fault: `pipeline archive` took zeros in the last log file for its end despite later records."""
    places = make_store(tmp_path / "s", 60, units=True)
    sound = logged(tmp_path / "s")
    place = places[-5]
    path = tmp_path / "s/commitlog" / file_name(place // SEGMENT * SEGMENT)
    with path.open("r+b") as file:
        file.seek(place % SEGMENT)
        file.write(bytes(places[-4] - place))
    with pytest.raises(RecordCorrupt, match="zeros, where a consume queue names records"):
        run(tmp_path / "s", tmp_path / "a")
    (manifest,) = run(tmp_path / "s", tmp_path / "a", skip_damage=True)
    assert rows(tmp_path / "a") == [row for row in sound if row[1] != place] and sum(b.rows for b in manifest.bad) == 1
    shutil.rmtree(tmp_path / "s/consumequeue")
    run(tmp_path / "s", tmp_path / "b")  # nothing says that the log goes on
    assert rows(tmp_path / "b") == sound[:-5]
