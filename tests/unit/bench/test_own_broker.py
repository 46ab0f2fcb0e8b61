"""The accounts of a broker that a benchmark starts: its own and that of the load, in files that nobody else reads."""

from __future__ import annotations

import stat
from pathlib import Path

from rocketpy.acl.credentials import read_credentials
from rocketpy.acl.plain_acl import parse_acl_file
from rocketpy.bench.own_broker import BROKER_CREDENTIALS, CREDENTIALS, write_accounts


def test_accounts_of_the_load_and_of_the_broker(tmp_path: Path) -> None:
    settings = write_accounts(tmp_path)
    path = tmp_path / "conf" / "plain_acl.yml"
    accounts = {one.access_key: one for one in parse_acl_file(path.read_bytes(), str(path)).accounts}
    assert accounts.keys() == {CREDENTIALS.access_key, BROKER_CREDENTIALS[0]}
    assert accounts[CREDENTIALS.access_key].is_admin, "it makes topics"
    own = Path(settings["aclCredentialsFile"])
    assert read_credentials(own).access_key == settings["aclBrokerAccounts"] == BROKER_CREDENTIALS[0]
    assert {stat.S_IMODE(each.stat().st_mode) for each in (own, path)} == {0o600}
    assert settings["rocketmqHome"] == str(tmp_path) and settings["aclEnable"] == "true"
