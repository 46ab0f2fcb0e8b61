"""A certificate for tests, which no client can check: `tls.test.mode.enable` of a server without one.

Short: `cryptography`, which makes it, is imported here alone, and only then.

Source: RocketMQ 4.9 `TlsHelper#buildSslContext`, Netty's `SelfSignedCertificate`.
"""

from __future__ import annotations

import ssl
import tempfile
from datetime import UTC, datetime, timedelta

from rocketpy.errors import ConfigError

VALID = timedelta(days=3650)


def load_throw_away(context: ssl.SSLContext) -> None:
    """Make a key and a certificate signed with it, and give them to `context`; nothing stays on the disk.

    Raises:
        ConfigError: the package `cryptography` is missing.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    except ImportError as exc:
        raise ConfigError(
            "the package cryptography makes the certificate for tests: pip install 'rocketpy-mq[tls]', or set "
            "tls.server.certPath and tls.server.keyPath",
            key="tls.test.mode.enable",
        ) from exc
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "rocketpy, for tests only")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + VALID)
    pem = builder.sign(key, SHA256()).public_bytes(Encoding.PEM)
    with tempfile.NamedTemporaryFile() as file:  # OpenSSL reads files; others cannot read this one
        file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + pem)
        file.flush()
        context.load_cert_chain(file.name)
