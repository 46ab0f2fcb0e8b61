"""SSL contexts from settings: TLS 1.2 and 1.3, strong ciphers, certificates and whom to trust.

Errors name the file and the remedy. OpenSSL never asks for a password at the terminal: it is given an empty one where
there is none.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from rocketpy.config import ClientAuth, TlsConfig
from rocketpy.errors import ConfigError

CIPHERS = ":".join(
    (
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "ECDHE-RSA-AES128-GCM-SHA256",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "ECDHE-RSA-AES256-GCM-SHA384",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        "ECDHE-RSA-CHACHA20-POLY1305",
    )
)
"""Of TLS 1.2: forward secrecy and authenticated encryption. All suites of TLS 1.3 have both: OpenSSL's three stay."""
# Python's ssl has no name for it. OpenSSL 3.2 and newer, where built with zlib (Debian 13), would unpack certificates,
# and the bound of a handshake (HANDSHAKE_BYTES_MAX) counts packed bytes.
OP_NO_RX_CERTIFICATE_COMPRESSION = 1 << 33 if ssl.OPENSSL_VERSION_INFO >= (3, 2) else 0
FILE_BYTES_MAX = 1 << 20  # of a PEM file that is looked at after an error
_NO_CERTIFICATE = "no PEM certificate (from DER: openssl x509 -inform DER -in OLD -out NEW)"
_PASSWORDS = "tls.server.keyPassword, tls.client.keyPassword, TlsOptions.key_password"
_AUTHENTICATION = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
}


def server_context(tls: TlsConfig) -> ssl.SSLContext:
    """Return the context of a server's connections.

    There are no session tickets: connections last, and each worker would have ticket keys of its own. Without them each
    connection has forward secrecy, and a client that connects again shows its certificate again.

    Raises:
        ConfigError: names the file that cannot be used, and the remedy.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | OP_NO_RX_CERTIFICATE_COMPRESSION
    context.num_tickets = 0
    if tls.makes_certificate:
        from .throw_away import load_throw_away

        load_throw_away(context)
    elif tls.tls_server_cert_path and tls.tls_server_key_path:
        certificate, key = Path(tls.tls_server_cert_path), Path(tls.tls_server_key_path)
        _load_certificate(context, certificate, key, tls.tls_server_key_password, "tls.server.certPath")
    if tls.checks_clients and tls.tls_server_trust_cert_path:
        context.verify_mode = _AUTHENTICATION[tls.tls_server_need_client_auth]
        _load_trusted(context, Path(tls.tls_server_trust_cert_path), "tls.server.trustCertPath")
    return context


def client_context(tls: TlsConfig) -> ssl.SSLContext:
    """Return the context of a broker's calls to name servers and to its master. Raises: as `server_context`."""
    return trusting_context(
        _path(tls.tls_client_trust_cert_path) if tls.checks_servers else None,
        _path(tls.tls_client_cert_path),
        _path(tls.tls_client_key_path),
        verify=tls.checks_servers,
        password=tls.tls_client_key_password,
        trusted_setting="tls.client.trustCertPath",
        certificate_setting="tls.client.certPath",
    )


def trusting_context(
    ca_file: Path | None,
    certificate_file: Path | None,
    key_file: Path | None,
    *,
    verify: bool,
    password: str | None = None,
    trusted_setting: str = "TLS",
    certificate_setting: str = "TLS",
) -> ssl.SSLContext:
    """Return the context of a client.

    Without `ca_file`, the authorities that the system trusts are trusted; with it, only those. `key_file` is that of
    the certificate; without it the key is in `certificate_file`. The two settings are named in errors.

    Raises: as `server_context`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks certificates and host names
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca_file is None:
        context.load_default_certs()
    if ca_file is not None:
        _load_trusted(context, ca_file, trusted_setting)
    if certificate_file is not None:
        _load_certificate(context, certificate_file, key_file, password, certificate_setting)
    return context


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def _load_certificate(
    context: ssl.SSLContext, certificate: Path, key: Path | None, password: str | None, setting: str
) -> None:
    try:
        context.load_cert_chain(certificate, key, password=password or "")
    except OSError as exc:
        named = f"{certificate} with the key {key}" if key is not None else str(certificate)
        why = _why_no_certificate(exc, certificate, key or certificate, password)
        raise ConfigError(f"cannot use {named}: {why}", key=setting) from exc


def _load_trusted(context: ssl.SSLContext, path: Path, setting: str) -> None:
    try:
        context.load_verify_locations(path)
    except OSError as exc:
        why = f"it has {_NO_CERTIFICATE}" if isinstance(exc, ssl.SSLError) else _unreadable(exc)
        raise ConfigError(f"cannot use {path}: {why}", key=setting) from exc


def _why_no_certificate(error: OSError, certificate: Path, key: Path, password: str | None) -> str:
    """Return the reason, which OpenSSL mostly calls "PEM lib"."""
    try:
        texts = [_begin_of(path) for path in (certificate, key)]
    except OSError as exc:
        return f"{exc.filename}: {_unreadable(exc)}"
    if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        return "the key belongs to another certificate; replace both files"
    if b"BEGIN CERTIFICATE" not in texts[0]:
        return f"{certificate} has {_NO_CERTIFICATE}"
    if b"PRIVATE KEY-----" not in texts[1]:
        return f"{key} has no PEM key (from DER: openssl pkcs8 -inform DER -nocrypt -in OLD -out NEW)"
    if b"ENCRYPTED" not in texts[1]:
        return getattr(error, "reason", None) or error.strerror or str(error)
    if not password:
        return f"the key is encrypted; set the password beside it ({_PASSWORDS})"
    again = "openssl pkcs8 -topk8 -provider legacy -provider default -in OLD -out NEW"
    return f"wrong password, or an encryption that OpenSSL 3 calls legacy ({again})"


def _unreadable(error: OSError) -> str:
    remedy = "let the user of this process read it" if isinstance(error, PermissionError) else "correct the path"
    return f"{error.strerror or error}; {remedy}"


def _begin_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(FILE_BYTES_MAX)
