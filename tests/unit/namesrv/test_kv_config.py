"""The key-value table: on the disk before it is visible, and a failure changes nothing."""

import json
from pathlib import Path

import pytest
import trio

from rocketpy.errors import ConfigError
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
