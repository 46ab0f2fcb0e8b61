"""The client's view of the cluster: name servers, routes, broker addresses, heartbeats, and what brokers ask of us.

Entry points: `Lifetime` (opens everything a producer or consumer needs), `ClientInstance` (routes and heartbeats),
`MQClientAPI` (one method per request code), `Brokers` (the same, addressed by queue).

    instance, lifetime, client_id               the jobs of a client, and what its parts share
    name_servers, route, route_renewal          where routes come from, what they say, when they are asked for early
    unanswered_sends                            sends to a master that is gone
    api, broker_requests, signing, error_codes  requests and their errors
    received                                    messages, decoded
"""
