"""`rocketpy store dump|verify|stats` as an operator meets them: selections, JSON, exit status, one clear line."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from rocketpy.admin import output
from rocketpy.cli.command_line import cli
from rocketpy.cli.store_progress import StoreProgress
from rocketpy.store.files import file_name
from rocketpy.store.recovery.lifecycle import close_store, open_store
from tests.support.store_writer import StoreWriter, small_config


@pytest.fixture
def root(tmp_path: Path) -> Path:
    config = small_config(tmp_path / "store")
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        for i in range(150):
            writer.put("T" if i % 3 else "Other", i % 2, b"body %d" % i, b"TAGS\x01A\x02KEYS\x01k%d" % i)
    close_store(opened, clean=True)
    return opened.paths.root


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["store", *map(str, arguments)])


def lines(*arguments: object) -> list[str]:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def values(*arguments: object) -> list[dict[str, object]]:
    return [json.loads(line) for line in lines(*arguments, "--json")]


def test_dump_of_records(root: Path) -> None:
    assert len(lines("dump", root)) == 100
    assert len(lines("dump", root, "--count", 1000)) == 150
    assert all(" Other/" in line for line in lines("dump", root, "--topic", "Other"))
    offsets = [value["phyOffset"] for value in values("dump", root, "--count", 1000)]
    assert [value["phyOffset"] for value in values("dump", root, "--from", offsets[40], "--count", 3)] == offsets[40:43]
    (record,) = values("dump", root, "--topic", "T", "--queue", 1, "--show", "records", "--count", 1)
    assert (record["topic"], record["queueId"], record["properties"]) == ("T", 1, {"TAGS": "A", "KEYS": "k1"})


def test_dump_of_units(root: Path) -> None:
    units = values("dump", root, "--topic", "T", "--queue", 0)
    assert [unit["queueOffset"] for unit in units] == list(range(50)) and units[0]["tagsCode"] == 65
    assert lines("dump", root, "--topic", "T", "--queue", 0, "--from", 48, "--count", 1)[0].split()[0] == "48"
    assert len(values("dump", root, "--show", "units", "--count", 1000)) == 150
    assert {unit["topic"] for unit in values("dump", root, "--show", "units", "--topic", "Other")} == {"Other"}


def test_dump_of_index_and_state(root: Path) -> None:
    header, first, *_ = values("dump", root, "--show", "index")
    assert header["index_count"] == 151 and first["number"] == 1
    assert "150 units" in lines("dump", root, "--show", "index")[0]
    (state,) = values("dump", root, "--show", "state")
    assert state["abort"] is False and state["inUseBy"] is None
    assert "abort: False" in lines("dump", root, "--show", "state")


def test_verify_of_a_sound_store(root: Path) -> None:
    first, unchecked, last = lines("verify", root)
    assert unchecked.startswith("not covered by a checksum or another file: flag, sysFlag, ")
    assert first.startswith("150 records, 150 units in 4 queues, 150 index units; log from 0 to") and last == "sound"
    (report,) = values("verify", root)
    assert report["sound"] is True and report["problems"] == [] and report["records"] == 150
    assert "storeTimestamp" in report["unchecked_fields"]


def test_damage_is_located_and_told_by_the_exit_status(root: Path) -> None:
    path = root / "commitlog" / file_name(0)
    image = bytearray(path.read_bytes())
    image[90] ^= 1
    path.write_bytes(image)
    result = run("verify", root)
    assert result.exit_code == 1 and f"commitlog/{file_name(0)} at byte 0: offset 0: body CRC" in result.output
    assert result.output.endswith("damaged\n")
    (problem,) = json.loads(run("verify", root, "--json").output)["problems"]
    assert (problem["file"], problem["position"]) == (f"commitlog/{file_name(0)}", 0)
    result = run("dump", root, "--count", 2)
    assert result.exit_code == 1 and "DAMAGED: body CRC" in result.output.splitlines()[0]
    assert "Other" not in result.output.splitlines()[1]  # the record behind the damaged one


def test_stats(root: Path) -> None:
    output = run("stats", root).output
    for text in ("150 with", "4 with 150 units", "1 files with 150 keys", "closed in order", "yes", "of this boot"):
        assert text in output, output
    (found,) = values("stats", root)
    assert [(topic["topic"], topic["records"]) for topic in found["topics"]] == [("T", 100), ("Other", 50)]
    (root / "abort").touch()
    assert "its broker was killed" in run("stats", root).output
    (root / "control").unlink()
    assert "none: the next start" in run("stats", root).output


@pytest.mark.parametrize("command", ["dump", "verify", "stats"])
def test_a_wrong_directory_is_one_line_and_status_2(tmp_path: Path, command: str) -> None:
    (tmp_path / "file").touch()
    for path, text in ((tmp_path / "none", "not a directory"), (tmp_path, "is no store"), (tmp_path / "file", "not a")):
        result = CliRunner().invoke(cli, ["store", command, str(path)])
        assert result.exit_code == 2 and text in result.output and len(result.output.splitlines()) == 1


@pytest.mark.parametrize("command", ["dump", "verify", "stats", "backup"])
def test_a_log_that_is_not_there_is_no_damage(root: Path, tmp_path: Path, command: str) -> None:
    """Fault: With a mistyped --commitlog a sound store was called damaged."""
    target = [tmp_path / "copies"] if command == "backup" else []
    result = run(command, root, *target, "--commitlog", tmp_path / "none")
    assert (result.exit_code, result.output) == (2, f"rocketpy: {tmp_path}/none is not a directory\n")


def test_backup_says_what_the_copy_has(root: Path, tmp_path: Path) -> None:
    said = lines("backup", root, tmp_path / "copies")
    end = values("stats", root)[0]["log_end"]
    assert said[-1].startswith(f"backup {tmp_path / 'copies'}/") and said[-2] == "sound"
    assert f": 150 messages up to log offset {end}, the last stored at 20" in said[-1]
    (copy,) = (tmp_path / "copies").iterdir()
    assert lines("verify", copy)[-1] == "sound"


def test_a_damaged_copy_is_told_by_the_exit_status(root: Path, tmp_path: Path) -> None:
    path = root / "commitlog" / file_name(0)
    image = bytearray(path.read_bytes())
    image[image.index(b"body 1")] ^= 1
    path.write_bytes(image)
    result = run("backup", root, tmp_path / "copies")
    assert result.exit_code == 1 and ".part is no backup; remove it and repeat, if" in result.output


def test_a_time_that_is_no_date(root: Path) -> None:
    path = root / "checkpoint"
    path.write_bytes((1 << 62).to_bytes(8, "big") + path.read_bytes()[8:])
    assert f"{1 << 62} ms, which is no date" in " ".join("\n".join(lines("stats", root)).split())


def test_a_wrong_queue_is_one_line(root: Path) -> None:
    result = run("dump", root, "--topic", "T", "--queue", 7)
    assert result.exit_code == 2 and "has no queue 7 of T" in result.output
    assert "has no topic X" in run("dump", root, "--topic", "X", "--show", "units").output
    assert "no record of topic X in the log; `rocketpy store stats " in run("dump", root, "--topic", "X").stderr


def test_a_log_elsewhere(root: Path, tmp_path: Path) -> None:
    (root / "commitlog").rename(tmp_path / "log")
    assert lines("verify", root, "--commitlog", tmp_path / "log")[-1] == "sound"


def test_the_bar_is_drawn_on_terminals_only() -> None:
    for is_terminal in (True, False):
        text = io.StringIO()
        with StoreProgress(Console(file=text, force_terminal=is_terminal, width=100)) as progress:
            progress.begin("log", 1 << 30, "bytes")
            progress.reached(1 << 29)
            progress.begin("queues", 3, "queues")
            progress.reached(2)
            progress._progress.refresh()
        assert ("queues" in text.getvalue() and "2/3" in text.getvalue()) is is_terminal
        assert bool(text.getvalue()) is is_terminal


def test_a_terminal_gets_what_messages_hold_as_plain_text(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: `rocketpy store dump` gave a terminal the control sequences that a producer had put into properties."""
    monkeypatch.setattr(output, "_is_terminal", lambda stream: True)
    config = small_config(root)
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        writer.put("[red]T", 0, b"", "TAGS\x01\x1b]0;title\x07\x9b2J".encode())
    close_store(opened, clean=True)
    for options in ((), ("--json",)):
        (line,) = lines("dump", root, "--topic", "[red]T", *options)
        assert "title" in line and "2J" in line and line.isprintable()
    assert any("[red]T" in line for line in lines("stats", root))
