"""The manager's side of the rings to the send, pull and store workers, and the shared memory that outlives it.

ring_fast_path     tables and requests to the workers; remoting/fast_path.py is its interface
internal_puts      messages that the manager stores through the send worker
queue_deletion     deletion of a topic's queues
filter_messages    subscriptions and SQL92 programs as ring messages
shared_limits      limits of addresses and accounts
shared_memory      deliveries of delayed messages, open half messages, positions from which filter bits are valid
"""
