"""The parts of push and pull consumers: membership in a group, queues, pulls, handlers and offsets.

Entry points: `GroupMember` (common to both), `Rebalancer` (assigned queues), `PullLoop` (one task per queue),
`ConcurrentService` and `OrderlyService` (from pulled messages to the handler).
"""
