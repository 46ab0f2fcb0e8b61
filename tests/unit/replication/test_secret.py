"""The secret between brokers of rocketpy, and its proofs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy.errors import ConfigError
from rocketpy.replication.secret import is_proof, make_proof, new_nonce, read_secret

SECRET = b"0123456789abcdef"


def test_a_secret_without_the_line_end(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(SECRET + b"\n")
    assert read_secret(str(path)) == SECRET and read_secret(None) == b""


@pytest.mark.parametrize("data", [b"", b"   \n", b"short", b"x" * 5000])
def test_what_is_no_secret(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "secret"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match="haSecretFile"):
        read_secret(str(path))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        read_secret(str(tmp_path / "absent"))


def test_a_proof_holds_for_one_handshake_one_side_and_what_it_says() -> None:
    """The value is what docs/understand/replication-protocol.md says, computed with openssl."""
    parts = ("slave", "a" * 32, "b" * 32, '{"end":5}')
    proof = make_proof(SECRET, *parts)
    assert proof == "0e144f955e65a1b931c1ab380c30f1dc92c8cd92946f9dbb1e6ced344adf1be6"
    others = [("master", *parts[1:])] + [(*parts[:i], "c", *parts[i + 1 :]) for i in range(1, 4)]
    assert not any(is_proof(make_proof(SECRET, *other), proof) for other in others)
    assert is_proof(proof, proof) and not is_proof(make_proof(SECRET + b"x", *parts), proof) and not is_proof("", proof)
    assert len({new_nonce() for _ in range(100)}) == 100
