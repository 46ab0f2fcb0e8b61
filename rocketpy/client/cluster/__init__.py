"""The client's view of the cluster: name servers, routes, broker addresses, heartbeats, and what brokers ask of us.

Entry points: `Lifetime` (opens everything a producer or consumer needs), `ClientInstance` (routes and heartbeats),
`MQClientAPI` (one method per request code), `Brokers` (the same, addressed by queue).

    instance, lifetime, jobs                    routes and heartbeats; what parts share, a client's id; its timers
    name_servers, route, route_renewal          where routes come from, what they say, when they are asked for early
    unanswered_sends                            sends to a master that is gone
    api, brokers, broker_requests               requests to brokers, by address and by queue, and those of brokers
    pull_connections                            bulk pulls of one thread, without an event loop
    received, time_search                       messages, decoded; the first one since a time
"""
