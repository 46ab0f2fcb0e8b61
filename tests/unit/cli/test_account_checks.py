"""What `rocketpy doctor` says of the files of accounts, of brokers and name servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy.cli import doctor
from rocketpy.cli.account_checks import account_findings
from rocketpy.config import load_broker_config, load_namesrv_config
from tests.support.accounts import SECRET, write_accounts


def findings(home: Path) -> list[tuple[str, str, bool]]:
    return [(one.found, one.remedy, one.is_fatal) for one in account_findings(home)]


def test_the_number_of_accounts(tmp_path: Path) -> None:
    write_accounts(tmp_path)
    file = tmp_path / "conf" / "plain_acl.yml"
    file.chmod(0o600)
    places = f"in {file} and {tmp_path / 'conf' / 'acl'}"
    assert findings(tmp_path) == [(f"2 {places}", "", False)]
    file.unlink()
    [(found, remedy, is_fatal)] = findings(tmp_path)
    assert found == f"0 {places}" and remedy.startswith("write an account") and not is_fatal


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622])
def test_a_file_that_others_may_read(tmp_path: Path, mode: int) -> None:
    """Fault: The doctor never looked at these files, which hold all secrets."""
    write_accounts(tmp_path)
    file = tmp_path / "conf" / "plain_acl.yml"
    file.chmod(mode)
    assert findings(tmp_path)[1:] == [(f"{file}: other users may read it", f"chmod 600 {file}", False)]


def test_a_mistake_that_ends_the_next_start(tmp_path: Path) -> None:
    write_accounts(tmp_path, f"accounts:\n- {{accessKey: operator, secretKey: {SECRET}, topicPerms: [orders]}}\n")
    file = tmp_path / "conf" / "plain_acl.yml"
    file.chmod(0o600)
    [(found, remedy, is_fatal)] = findings(tmp_path)
    assert is_fatal and remedy == "correct the file: the next start would fail"
    assert found.startswith(f"{file}:2: topicPerms: ") and SECRET not in found


def test_both_servers_are_looked_at_and_files_of_both_once(tmp_path: Path) -> None:
    for name in ("broker", "namesrv"):
        write_accounts(tmp_path / name)
        (tmp_path / name / "conf" / "plain_acl.yml").chmod(0o600)

    environ = {"HOME": str(tmp_path)}

    def looked_at(broker: str | None, namesrv: str | None) -> int:
        def given(name: str | None) -> dict[str, str]:
            return {"aclEnable": "true", "rocketmqHome": str(tmp_path / name)} if name else {"aclEnable": "false"}

        settings = load_broker_config(None, given(broker), environ), load_namesrv_config(None, given(namesrv), environ)
        return len(list(doctor._accounts(*settings)))

    assert looked_at("broker", "namesrv") == 2
    assert looked_at("broker", "broker") == looked_at(None, "namesrv") == 1
    assert looked_at(None, None) == 0 and not list(doctor._accounts(None, None))
