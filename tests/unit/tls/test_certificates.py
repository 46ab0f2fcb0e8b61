"""Certificates: files that are replaced while they are in use, and when they expire."""

from __future__ import annotations

import logging
import os
import ssl
import time
from pathlib import Path

import pytest
import trustme

from rocketpy.errors import ConfigError
from rocketpy.tls import Certificates
from rocketpy.tls.certificates import _moment, not_after_s
from tests.support.cases import cases
from tests.support.certificates import Authority, Issued, tls_config

DAY_S = 86_400


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def of_server(issued: Issued) -> Certificates:
    return Certificates.of_server(tls_config(issued.settings()))


def looked(certificates: Certificates) -> bool:
    """Two looks: a change has to stand for an interval."""
    return [certificates.has_changed() for _ in range(2)][1]


def test_nothing_is_loaded_again_while_nothing_changes(authority: Authority) -> None:
    certificates = of_server(authority.issue())
    assert not any(looked(certificates) for _ in range(10))


def test_new_connections_get_the_new_certificate(authority: Authority) -> None:
    used, new = authority.issue(days=20), authority.issue(days=300)
    certificates = of_server(used)
    before = certificates.context
    used.replace(new)
    assert not certificates.has_changed(), "it may be half written"
    assert certificates.has_changed()
    certificates.reload()
    assert certificates.context is not before and (certificates.reloads, certificates.reload_failures) == (1, 0)
    assert certificates.days_left(time.time()) in (299, 300)
    assert not looked(certificates)


def test_files_behind_links_are_seen_as_well(authority: Authority, tmp_path: Path) -> None:
    """A mounted secret is a link that is turned to another directory."""
    versions = []
    for days in (20, 300):
        issued, directory = authority.issue(days=days), tmp_path / f"version-{days}"
        directory.mkdir()
        for file, name in ((issued.certificate, "tls.crt"), (issued.key, "tls.key")):
            (directory / name).write_bytes(file.read_bytes())
            os.utime(directory / name, (1, 1))
        versions.append(directory)
    current = tmp_path / "current"
    current.symlink_to(versions[0])
    certificates = of_server(Issued(current / "tls.crt", current / "tls.key"))
    (tmp_path / "next").symlink_to(versions[1])
    (tmp_path / "next").replace(current)
    assert looked(certificates)
    certificates.reload()
    assert certificates.reloads == 1


def test_the_old_one_stays_when_the_new_one_does_not_load(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """Each change that fails is counted and logged once."""
    used, other = authority.issue(days=20), authority.issue()
    certificates, before = of_server(used), used.certificate.read_bytes()
    context = certificates.context
    for failures, text in enumerate([b"no PEM", other.certificate.read_bytes(), b""], 1):
        used.certificate.write_bytes(text)
        assert looked(certificates)
        certificates.reload()
        assert certificates.context is context and certificates.reload_failures == failures
        assert not looked(certificates), "once for a change"
    used.certificate.unlink()
    assert looked(certificates)
    certificates.reload()
    assert certificates.reload_failures == 4
    assert len(caplog.records) == 4 and all("the one loaded before" in one.message for one in caplog.records)
    assert f"cannot use {used.certificate} with the key {used.key}" in caplog.text
    used.certificate.write_bytes(before)
    assert looked(certificates)
    certificates.reload()
    assert certificates.context is not context and certificates.reloads == 1


def test_authorities_are_watched_too(authority: Authority, tmp_path: Path) -> None:
    more = Authority(tmp_path, "more")
    certificates = Certificates.of_server(tls_config(authority.issue().settings(), authority.asking()))
    assert certificates.context.cert_store_stats()["x509_ca"] == 1
    with authority.ca_file.open("ab") as file:
        file.write(more.ca_file.read_bytes())
    assert looked(certificates)
    certificates.reload()
    assert certificates.context.cert_store_stats()["x509_ca"] == 2


def test_a_process_that_begins_loads_what_has_changed_at_once(authority: Authority) -> None:
    """The files were read before the fork: the first connection of a restarted worker gets the new certificate."""
    used, new = authority.issue(days=20), authority.issue(days=300)
    certificates = of_server(used)
    before = certificates.context
    certificates.load_changed()
    assert certificates.context is before
    used.replace(new)
    certificates.load_changed()
    assert certificates.context is not before
    certificates.load_changed()
    assert certificates.context is not before and not looked(certificates)
    used.certificate.write_text("none")
    with pytest.raises(ConfigError):  # what was loaded before may be long out of date
        certificates.load_changed()


def test_a_caller_may_have_no_certificate(authority: Authority) -> None:
    certificates = Certificates.of_client(tls_config(authority.trusting()))
    assert certificates.days_left(0) is None and not looked(certificates)
    shown = Certificates.of_client(tls_config(authority.trusting(authority.issue("client", days=3))))
    assert shown.days_left(time.time()) in (2, 3)


@pytest.mark.parametrize(("days", "text"), [(3, "expires in 2 days"), (-2, "expired 3 days ago"), (40, None)])
def test_the_log_warns_in_time(
    authority: Authority, caplog: pytest.LogCaptureFixture, days: int, text: str | None
) -> None:
    issued = authority.issue(days=days)
    certificates = of_server(issued)
    assert certificates.context, "an expired certificate is served: clients refuse it"
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == (text is not None)
    assert text is None or text in warnings[0]


def test_the_first_of_a_chain_to_expire_counts(tmp_path: Path) -> None:
    authority, file = Authority(tmp_path), tmp_path / "chain.pem"
    pieces = [authority.issue(days=days).certificate.read_bytes() for days in (90, 5, 50)]
    file.write_bytes(b"comment\n" + b"\n".join(pieces))
    assert abs(not_after_s(file) - time.time() - 5 * DAY_S) < DAY_S


def test_times_are_those_that_openssl_reads(tmp_path: Path) -> None:
    """Of certificates before and after 2050, which have another form of time."""
    for number, days in enumerate((-3650, 1, 365, 20_000)):
        issued = Authority(tmp_path / str(number)).issue(days=days)
        decoded = ssl._ssl._test_decode_cert(str(issued.certificate))  # type: ignore[attr-defined]  # of CPython's tests
        assert not_after_s(issued.certificate) == ssl.cert_time_to_seconds(decoded["notAfter"])
    authority = tmp_path / "authority.pem"
    trustme.CA().cert_pem.write_to_path(authority)
    assert not_after_s(authority) > time.time() + 3650 * DAY_S


def test_what_is_no_time_of_a_certificate() -> None:
    short, long = "260228000000Z", "20260228000000Z"
    for tag, text in ((0x17, "260229000000Z"), (0x17, long), (0x18, short), (0x16, short)):
        with pytest.raises(ValueError, match=r"day|time of a certificate"):
            _moment(tag, text)
    for text in ("260228000000", "2602280000+0Z", "26022800000Z", "2602280000\u0661\u0661Z", "Z", ""):
        with pytest.raises(ValueError, match="time of a certificate"):
            _moment(0x17, text)


@cases("cut", [*range(0, 400, 7), 401])
def test_what_is_no_certificate(authority: Authority, tmp_path: Path, cut: int) -> None:
    file = tmp_path / "cut.pem"
    der = ssl.PEM_cert_to_DER_cert(authority.ca_file.read_text().strip())
    assert len(der) > 401
    file.write_text(ssl.DER_cert_to_PEM_cert(der[:cut] + bytes(range(256))[: cut % 5]))
    with pytest.raises(ConfigError, match="has no PEM certificate"):
        not_after_s(file)


def test_a_caller_without_a_loop_looks_at_each_call(authority: Authority) -> None:
    used = authority.issue("client", days=20)
    certificates = Certificates.of_client(tls_config(authority.trusting(used)))
    before = certificates.refreshed()
    assert certificates.refreshed() is before
    used.replace(authority.issue("client", days=300))
    assert certificates.refreshed() is before, "it may be half written"
    assert certificates.refreshed() is not before and certificates.reloads == 1
