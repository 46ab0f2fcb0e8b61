"""What push and pull consumers are made of: a group's member, its queues, pulls, handlers and offsets.

Entry points: `GroupMember` (common to both), `Rebalancer` (which queues are ours), `PullLoop` (one task per queue),
`ConcurrentService` and `OrderlyService` (from pulled messages to the handler).
"""
