"""Remoting over trio streams: client, server, and the channel of a connection.

`client.RemotingClient` sends requests to any address over pooled connections; `server.RemotingServer` accepts
connections and answers their requests. Both are made of `channel.StreamChannel`, one per connection; `streams` is
the only place where sockets are opened. Everything runs in the nursery of the `run()` that started it.
"""
