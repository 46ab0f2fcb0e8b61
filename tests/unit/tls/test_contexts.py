"""SSL contexts: versions and ciphers, and what an error says of the files."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trio
import trustme
from cryptography.hazmat.primitives import serialization

from rocketpy.client.cluster.lifetime import Lifetime
from rocketpy.client.options import ClientOptions, TlsOptions
from rocketpy.errors import ConfigError, TlsFailed
from rocketpy.tls import TlsSession, client_context, server_context, trusting_context
from rocketpy.tls.contexts import CIPHERS, OP_NO_RX_CERTIFICATE_COMPRESSION
from tests.support.certificates import HOST, Authority, converse, tls_config


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


def test_versions_and_ciphers_are_strong(authority: Authority) -> None:
    context = server_context(tls_config(authority.issue().settings()))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.maximum_version == ssl.TLSVersion.MAXIMUM_SUPPORTED
    of_1_2 = {cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] == "TLSv1.2"}
    assert of_1_2 == set(CIPHERS.split(":")) and all(cipher["aead"] for cipher in context.get_ciphers())
    for option in (ssl.OP_NO_COMPRESSION, ssl.OP_NO_RENEGOTIATION, ssl.OP_NO_TICKET, ssl.OP_CIPHER_SERVER_PREFERENCE):
        assert context.options & option
    assert context.options & OP_NO_RX_CERTIFICATE_COMPRESSION == OP_NO_RX_CERTIFICATE_COMPRESSION
    assert context.num_tickets == 0 and context.verify_mode == ssl.CERT_NONE


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("password", ["", "of the key"])
def test_both_versions_and_keys_with_a_password(authority: Authority, version: ssl.TLSVersion, password: str) -> None:
    tls = tls_config(authority.issue(password=password).settings(), authority.trusting())
    caller = client_context(tls)
    caller.maximum_version = version
    client, server = TlsSession.client(caller, HOST), TlsSession.server(server_context(tls))
    converse(client, server)
    assert client.is_established and server.is_established


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    ("ciphers", "version"),
    [
        ("DEFAULT:@SECLEVEL=0", ssl.TLSVersion.TLSv1_1),
        ("AES256-SHA", ssl.TLSVersion.TLSv1_2),  # no forward secrecy
        ("ECDHE-RSA-AES256-SHA384:ECDHE-ECDSA-AES256-SHA384", ssl.TLSVersion.TLSv1_2),  # CBC
        ("DHE-RSA-AES256-GCM-SHA384", ssl.TLSVersion.TLSv1_2),
        ("aNULL:eNULL:@SECLEVEL=0", ssl.TLSVersion.TLSv1_2),
    ],
)
def test_weak_versions_and_ciphers_are_refused(authority: Authority, ciphers: str, version: ssl.TLSVersion) -> None:
    tls = tls_config(authority.issue().settings(), authority.trusting())
    caller = client_context(tls)
    caller.set_ciphers(ciphers)
    caller.minimum_version = min(version, ssl.TLSVersion.TLSv1_2)
    caller.maximum_version = version
    with pytest.raises(TlsFailed) as caught:
        converse(TlsSession.client(caller, HOST), TlsSession.server(server_context(tls)))
    assert caught.value.reason == "protocol"


def test_what_an_error_says_of_the_files(authority: Authority, tmp_path: Path) -> None:
    plain, locked = authority.issue(), authority.issue(password="right")
    none, text, der = tmp_path / "none", tmp_path / "text", tmp_path / "der"
    text.write_text("no PEM")
    der.write_bytes(ssl.PEM_cert_to_DER_cert(plain.certificate.read_text().split("\n\n")[0]))
    for certificate, key, password, message in [
        (none, plain.key, "", f"{none}: No such file or directory; correct the path"),
        (plain.certificate, none, "", f"{none}: No such file"),
        (plain.certificate, tmp_path, "", f"{tmp_path}: Is a directory"),
        (text, plain.key, "", f"{text} has no PEM certificate"),
        (der, plain.key, "", "openssl x509 -inform DER"),
        (plain.certificate, text, "", f"{text} has no PEM key"),
        (
            plain.certificate,
            locked.key,
            "",
            "the key is encrypted; set the password beside it (tls.server.keyPassword,",
        ),
        (locked.certificate, locked.key, "wrong", "wrong password, or an encryption that OpenSSL 3 calls legacy"),
        (plain.certificate, authority.issue().key, "", "another certificate; replace both files"),
    ]:
        files = {"tls.server.certPath": str(certificate), "tls.server.keyPath": str(key)}
        with pytest.raises(ConfigError) as caught:
            server_context(tls_config(files, {"tls.server.keyPassword": password}))
        text_of = str(caught.value)
        assert text_of.startswith(f"tls.server.certPath: cannot use {certificate} with the key {key}: ")
        assert message in text_of and "wrong" not in text_of.replace("wrong password", "")


def test_what_an_error_says_of_authorities(authority: Authority, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no PEM")
    for path, message in [
        (tmp_path / "none", "No such file or directory; correct the path"),
        (text, "it has no PEM certificate .from DER: openssl x509 -inform DER"),
    ]:
        asking = authority.asking() | {"tls.server.trustCertPath": str(path)}
        with pytest.raises(ConfigError, match=f"tls.server.trustCertPath: cannot use {path}: {message}"):
            server_context(tls_config(authority.issue().settings(), asking))
        with pytest.raises(ConfigError, match=f"tls.client.trustCertPath: cannot use {path}: {message}"):
            client_context(tls_config({"tls.client.trustCertPath": str(path)}))


def test_a_file_of_another_user(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    served = tls_config(authority.issue().settings())

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "the file")

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", refuse)
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", refuse)
    monkeypatch.setattr(Path, "open", refuse)
    may = "Permission denied; let the user of this process read it"
    with pytest.raises(ConfigError, match=f"the file: {may}"):
        server_context(served)
    with pytest.raises(ConfigError, match=f"cannot use /ca.pem: {may}"):
        client_context(tls_config({"tls.client.trustCertPath": "/ca.pem"}))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (TlsOptions(ca_file=Path("/nowhere")), "TlsOptions.ca_file (mqadmin: --tls-ca): cannot use /nowhere: "),
        (
            TlsOptions(certificate_file=Path("/nowhere")),
            "TlsOptions.certificate_file (mqadmin: --tls-cert): cannot use /nowhere: ",
        ),
    ],
)
def test_an_error_of_a_client_names_its_option(options: TlsOptions, named: str) -> None:
    lifetime = Lifetime(ClientOptions(tls=options), "client")
    with pytest.raises(ConfigError) as caught:
        trio.run(lifetime.open)
    assert str(caught.value).startswith(named)


def test_callers_check_servers_unless_told_otherwise(authority: Authority) -> None:
    assert client_context(tls_config()).check_hostname
    assert client_context(tls_config()).cert_store_stats()["x509_ca"] >= 0, "those of the system"
    for off in ({"tls.client.authServer": "false"}, {"tls.test.mode.enable": "true"}):
        context = client_context(tls_config(off, {"tls.client.trustCertPath": "/none"}))
        assert context.verify_mode == ssl.CERT_NONE and not context.check_hostname
    own = trusting_context(authority.ca_file, None, None, verify=True)
    assert own.cert_store_stats()["x509_ca"] == 1, "only these"


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    authority = trustme.CA()
    trusted, text = tmp_path / "ca.pem", tmp_path / "text"
    authority.cert_pem.write_to_path(trusted)
    text.write_text("no PEM")
    certificate, key, locked = (tmp_path / name for name in ("cert.pem", "key.pem", "locked.pem"))
    issued = authority.issue_cert("client@example.org")
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    read = serialization.load_pem_private_key(key.read_bytes(), password=None)
    encryption = serialization.BestAvailableEncryption(b"secret")
    locked.write_bytes(read.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption))
    for files, named in [
        ((tmp_path / "none", None, None), f"{tmp_path / 'none'}: No such file"),
        ((text, None, None), f"{text}: "),
        ((trusted, certificate, None), f"{certificate}: "),
        ((trusted, certificate, trusted), f"{certificate} with the key {trusted}: "),
        ((trusted, certificate, locked), f"{certificate} with the key {locked}: "),
    ]:
        with pytest.raises(ConfigError, match=f"TLS: cannot use {named}"):
            trusting_context(*files, verify=True)
    assert trusting_context(trusted, certificate, key, verify=True).verify_mode == ssl.CERT_REQUIRED
