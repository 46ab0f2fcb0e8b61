"""The client's view of the cluster: name servers, routes, broker addresses, heartbeats, and what brokers ask of us.

Entry points: `Lifetime` (opens everything a producer or consumer needs), `ClientInstance` (routes and heartbeats),
`MQClientAPI` (one method per request code), `Brokers` (the same, addressed by queue).
"""
