"""TLS without I/O: contexts from settings, certificates that are loaded again, one connection's bytes, and counts.

    certificates = Certificates.of_server(settings.tls)      # raises ConfigError; before a fork: workers inherit it
    if certificates.has_changed():                           # every LOOK_S: a stat for each file
        certificates.reload()                                # in a thread; new connections get the new context

    session = TlsSession.server(certificates.context)        # one connection
    plaintext = session.receive(bytes_of_the_peer)           # raises TlsFailed; HandshakeCounts.refuse counts and logs
    session.send(plaintext)
    bytes_for_the_peer = session.take_outgoing()

`TlsSession` serves streams under trio (transport/tls.py): clients and name servers. A TLS worker
(reactor/tls_handshakes.py) and a slave's replicator (replication/connection.py) wrap sockets with the contexts of this
package. Nothing here is imported where TLS is off.
"""

from .certificates import LOOK_S, Certificates
from .contexts import CIPHERS, client_context, server_context, trusting_context
from .handshakes import (
    HANDSHAKE_BYTES_MAX,
    HANDSHAKE_S,
    HANDSHAKES_OF_SOURCE_MAX,
    HELLO,
    NAMESRV_HANDSHAKES_MAX,
    HandshakeCounts,
    TlsStatistics,
)
from .session import TlsSession, failure_of

__all__ = [
    "CIPHERS",
    "HANDSHAKES_OF_SOURCE_MAX",
    "HANDSHAKE_BYTES_MAX",
    "HANDSHAKE_S",
    "HELLO",
    "LOOK_S",
    "NAMESRV_HANDSHAKES_MAX",
    "Certificates",
    "HandshakeCounts",
    "TlsSession",
    "TlsStatistics",
    "client_context",
    "failure_of",
    "server_context",
    "trusting_context",
]
