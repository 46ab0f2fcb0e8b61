"""docs/run/tls.md: its tables are those of the code; the commands that it links to make files that are used."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rocketpy.tls import TlsSession, client_context, server_context
from rocketpy.tls.handshake_counts import REASONS
from rocketpy.transport.tls import HANDSHAKES_OF_SOURCE_MAX, NAMESRV_HANDSHAKES_MAX
from tests.support.certificates import HOST, converse, tls_config
from tests.support.rules import ROOT

PAGE = (ROOT / "docs" / "run" / "tls.md").read_text()
COMMANDS = (ROOT / "docs" / "run" / "public-network.md").read_text()


def test_reasons_and_bounds() -> None:
    section = PAGE.partition("## Reasons")[2].partition("##")[0]
    assert set(re.findall(r"^- `(\w+)`: ", section, re.MULTILINE)) == set(REASONS)
    assert f"At most {NAMESRV_HANDSHAKES_MAX} handshakes at once, {HANDSHAKES_OF_SOURCE_MAX} of one address" in PAGE


def test_the_broker_of_the_commands_keeps_its_log_from_other_users_of_the_machine() -> None:
    """Fault: With accounts on, a plain socket from loopback got the whole log from the HA port."""
    settings = COMMANDS.partition("/etc/rocketpy/broker.conf <<END")[2].partition("END\n")[0]
    (path,) = re.findall(r"^haSecretFile = (\S+)$", settings, re.MULTILINE)
    before = COMMANDS.partition("/etc/rocketpy/broker.conf <<END")[0]
    made, owned = before.index(f"openssl rand -hex 24 > {path}\n"), before.index(f" {path}\n", before.index("chown"))
    assert before.index("umask 077") < made < owned < before.index("umask 022")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the page makes certificates with openssl")
def test_the_commands_make_certificates_that_both_sides_use(tmp_path: Path) -> None:
    block = COMMANDS.partition("## 1. Certificates")[2].split("```")[1].removeprefix("sh\n")
    commands = block.partition("install ")[0].replace("203.0.113.7", HOST).replace("/root/authority", str(tmp_path))
    done = subprocess.run(["sh", "-e"], input=commands, text=True, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    files = {"certPath": "server.pem", "keyPath": "server-key.pem"}
    server = {f"tls.server.{key}": str(tmp_path / name) for key, name in files.items()}
    tls = tls_config(server, {"tls.client.trustCertPath": str(tmp_path / "ca.pem")})
    for host in (HOST, "broker.example.org"):
        converse(TlsSession.client(client_context(tls), host), TlsSession.server(server_context(tls)))
    assert (tmp_path / "server-key.pem").stat().st_mode & 0o077 == 0
