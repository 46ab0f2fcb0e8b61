"""Servers with accounts: the directory of their files, the file of a broker's own account, and clients that sign.

Short: what several tests of access control share.
"""

from __future__ import annotations

import os
from pathlib import Path

from rocketpy.client import ProducerOptions, PullOptions
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.signature import Credentials, sign

SECRET = "secret-of-all"
BROKER, OPERATOR = "broker-a", "operator"
ACCOUNTS = f"""
accounts:
- {{accessKey: {BROKER}, secretKey: {SECRET}}}
- {{accessKey: {OPERATOR}, secretKey: {SECRET}, admin: true}}
"""


def write_accounts(home: Path, text: str = ACCOUNTS) -> dict[str, str]:
    """Write, or replace, the file of accounts. Returns: the properties of a server that uses it."""
    conf = home / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    new = conf / "plain_acl.new"  # another inode: a change is seen at any time
    new.write_text(text)
    os.replace(new, conf / "plain_acl.yml")
    return {"aclEnable": "true", "rocketmqHome": str(home), "aclBrokerAccounts": BROKER}


def write_credentials(directory: Path, account: str = BROKER, secret: str = SECRET) -> dict[str, str]:
    """Write the file of a broker's account. Returns: the property that names it."""
    path = directory / f"{account}-{secret}.yml"
    path.write_text(f"accessKey: {account}\nsecretKey: {secret}\n")
    path.chmod(0o600)
    return {"aclCredentialsFile": str(path)}


def signed(request: RemotingCommand, account: str = OPERATOR, secret: str = SECRET) -> RemotingCommand:
    sign(request, Credentials(account, secret))
    return request


def producer_options(namesrv: str, account: str = OPERATOR) -> ProducerOptions:
    return ProducerOptions(name_servers=namesrv, credentials=Credentials(account, SECRET))


def pull_options(namesrv: str, account: str = OPERATOR) -> PullOptions:
    return PullOptions(name_servers=namesrv, credentials=Credentials(account, SECRET))
