"""The parts of push and pull consumers: membership in a group, queues, pulls, handlers and offsets.

Entry points: `GroupMember` (common to both), `Rebalancer` (assigned queues), `PullLoop` (one per queue),
`ConcurrentService` and `OrderlyService` (from pulled messages to the handler).

    group_member, rebalance, queue_locks        membership, assigned queues, their locks
    subscription, offset_store                  what is consumed, from where on, and how far it is
    pull_loop, process_queue                    pulls, and the messages that wait for the handler
    concurrent, orderly, context                handler calls, in any order or in that of the queue
    handler, traced_handler, retry_sender       the user's function, its trace, and what becomes of failures
    assigned_queues, fetched                    of the pull consumer: pauses, and messages that wait for a poll
    statistics, running_info                    for operators
"""
