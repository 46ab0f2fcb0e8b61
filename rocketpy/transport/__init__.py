"""Commands over connections: of clients under trio and asyncio, of servers under trio.

`client.RemotingClient` sends requests to any address over pooled connections; `server.RemotingServer` accepts
connections and answers their requests. Everything but `BlockingConnection` runs in the nursery of the `run()`
that started it.

    byte_stream    a connection by writes and callbacks; trio_socket_stream and asyncio_stream are those of clients,
                   tls_byte_stream encrypts them; trio_stream is that of servers
    connector      opens one for the backend that runs the caller
    channel        StreamChannel: commands over a byte stream, in either role; limits: the bounds of one, and of all
    client         RemotingClient; signing: with signatures
    blocking_connection
                   requests of one thread, without an event loop
    server         RemotingServer; streams, tls: the sockets and the TLS of trio; sockets: what both backends ask of one
    address_server the HTTP service that names the name servers
    duties, steps  background work of servers, and long work in steps; under trio
"""
