"""The key-value table: on the disk before it is visible, and a failure changes nothing."""

import json
from pathlib import Path

import pytest
import trio

from rocketpy.errors import ConfigError, RequestRefused
from rocketpy.namesrv import kv_config
from rocketpy.namesrv.kv_config import KVConfigManager


def test_put_delete_and_reload(tmp_path: Path) -> None:
    path = tmp_path / "namesrv" / "kvConfig.json"

    async def change() -> None:
        kv = KVConfigManager.load(path)
        assert kv.namespace("N") is None
        await kv.put("N", "k1", "v1")
        await kv.put("N", "k2", "中")
        await kv.put("M", "k", "v")
        await kv.delete("N", "k1")
        await kv.delete("N", "unknown")
        await kv.delete("unknown", "k")
        await kv.delete("M", "k")

    trio.run(change)
    kv = KVConfigManager.load(path)
    assert json.loads(path.read_text()) == {"configTable": {"N": {"k2": "中"}, "M": {}}}
    assert kv.value("N", "k2") == "中"
    assert kv.value("N", "k1") is None
    assert kv.value("unknown", "k") is None
    assert kv.namespace("M") == {}
    assert kv.namespace("unknown") is None


def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    kv = KVConfigManager.load(tmp_path / "kv.json")

    async def change() -> None:
        async with trio.open_nursery() as nursery:
            for index in range(10):
                nursery.start_soon(kv.put, "N", f"k{index}", "v")

    trio.run(change)
    namespace = KVConfigManager.load(tmp_path / "kv.json").namespace("N")
    assert namespace == {f"k{index}": "v" for index in range(10)}


def test_what_cannot_be_written_does_not_happen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kv = KVConfigManager(tmp_path / "kv.json", {"N": {"k": "old"}})

    def fail(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kv_config, "write_atomically", fail)
    with pytest.raises(OSError, match="No space"):
        trio.run(kv.put, "N", "k", "new")
    assert kv.value("N", "k") == "old"


@pytest.mark.parametrize(
    ("entries_max", "bytes_max", "change", "reason"),
    [
        (3, 1000, ("N", "k3", ""), "4 namespaces and keys, at most 3"),
        (4, 1000, ("M", "k", ""), "5 namespaces and keys, at most 4"),
        (9, 100, ("N", "k2", "x" * 60), "bytes, at most 100"),
    ],
)
def test_a_full_table(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    entries_max: int,
    bytes_max: int,
    change: tuple[str, str, str],
    reason: str,
) -> None:
    """Fault: The table of a name server had no bound in number or bytes."""
    monkeypatch.setattr(kv_config, "BYTES_MAX", bytes_max)
    monkeypatch.setattr(kv_config, "ENTRIES_MAX", entries_max)
    kv = KVConfigManager(tmp_path / "kv.json", {"N": {"k1": "v", "k2": "v"}})
    if change[0] == "M":
        trio.run(kv.delete, "N", "k1")
        trio.run(kv.put, "L", "k", "")
        trio.run(kv.delete, "L", "k")  # the namespace stays
    before = dict(kv.table)
    with pytest.raises(RequestRefused, match=f"{reason} are allowed; delete keys with deleteKvConfig"):
        trio.run(kv.put, *change)
    assert kv.table == before
    trio.run(kv.put, "N", "k2", "w")
    assert kv.value("N", "k2") == "w"


def test_a_table_that_is_too_large_may_shrink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_config, "BYTES_MAX", 20)
    monkeypatch.setattr(kv_config, "ENTRIES_MAX", 1)
    kv = KVConfigManager(tmp_path / "kv.json", {"N": {"k1": "long", "k2": "long", "k3": "long"}})
    with pytest.raises(RequestRefused):
        trio.run(kv.put, "N", "k1", "longer")
    trio.run(kv.put, "N", "k1", "abc")
    trio.run(kv.delete, "N", "k2")
    assert kv.namespace("N") == {"k1": "abc", "k3": "long"}


def test_the_file_of_the_reference(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    path.write_text('{\n\t"configTable":{"ORDER_TOPIC_CONFIG":{\n\t\t"T":"broker-a:4"\n\t}\n\t}\n}')
    assert KVConfigManager.load(path).value("ORDER_TOPIC_CONFIG", "T") == "broker-a:4"


@pytest.mark.parametrize("text", ["{", "", "[" * 100_000, '{"configTable":[]}', '{"configTable":{"N":1}}'])
def test_a_damaged_file_without_backup_is_refused(tmp_path: Path, text: str) -> None:
    """Fault: A table of arrays within arrays ended the start with a traceback, also beside a usable backup."""
    path = tmp_path / "kv.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"kvConfigPath: cannot read the key-value table: .*kv\.json"):
        KVConfigManager.load(path)


def test_a_damaged_file_with_backup(tmp_path: Path) -> None:
    (tmp_path / "kv.json").write_text("{")
    (tmp_path / "kv.json.bak").write_text('{"configTable":{"N":{"k":"v"}}}')
    assert KVConfigManager.load(tmp_path / "kv.json").value("N", "k") == "v"


@pytest.mark.parametrize("text", ["{}", '{"configTable":null}', "[]"])
def test_an_empty_table(tmp_path: Path, text: str) -> None:
    (tmp_path / "kv.json").write_text(text)
    assert KVConfigManager.load(tmp_path / "kv.json").namespace("N") is None
