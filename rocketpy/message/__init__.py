"""Messages as values and as bytes: memory only, no files, no sockets, no clocks.

With `remoting`, this package says what each format means; the C of csrc/ is compared with it (docs/adr/0022).

Entry points: `record` (one message as it lies in the CommitLog and goes to consumers), `batch` (several in one
request), `properties`, `sys_flag`, `message_id`, `compression`, `names` (which topics and groups are legal, which
belong to the system). The messages that programs handle are values of the client (`client/messages.py`).
"""
