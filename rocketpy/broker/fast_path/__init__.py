"""The manager's side of the rings to the send, pull and store workers, and the shared memory that outlives it.

ring_fast_path     tables and requests to the workers; remoting/fast_path.py is its interface
internal_puts      messages that the manager stores through the send worker
queue_deletion     deletion of a topic's queues
filter_messages    subscriptions and SQL92 programs as ring messages
delivery_marks     shared memory: deliveries of delayed messages
half_states        shared memory: open half messages
filter_marks       shared memory: the position from which filter bits are valid for a subscription
"""
