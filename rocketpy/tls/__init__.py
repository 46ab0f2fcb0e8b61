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
package. Nothing here is imported where TLS is off. Constants are imported from their modules.
"""

from .certificates import Certificates
from .contexts import client_context, server_context, trusting_context
from .handshake_counts import HandshakeCounts, TlsStatistics
from .session import TlsSession, failure_of

__all__ = [
    "Certificates",
    "HandshakeCounts",
    "TlsSession",
    "TlsStatistics",
    "client_context",
    "failure_of",
    "server_context",
    "trusting_context",
]
