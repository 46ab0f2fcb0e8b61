"""Messages as values and as bytes: memory only, no files, no sockets, no clocks.

Entry points: `message.Message` and `message.MessageExt`; `record` (one message as it lies in the CommitLog and goes to
consumers), `batch` (several in one request), `properties`, `sys_flag`, `message_id`, `compression`, `names` (which
topics and groups are legal, which belong to the system).
"""
