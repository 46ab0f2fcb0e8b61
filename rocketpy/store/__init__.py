"""The message store: files only; no sockets, no trio, no request codes. Formats are the Java broker's, byte for byte.

Who runs what:

    supervisor   `open_store` (lock, recovery, `abort`) before the workers are forked, `close_store` after they ended
    send         the CommitLog's end (csrc/store/log/commitlog.c)
    store        `StoreService`: dispatch, flush, allocation, cleaning
    pull         units and log slices (csrc/store/queues/consume_queue.c, csrc/store/log/log_view.c)
    manager      `MessageStore`: all reads of the store in Python
    no worker    `inspection`: tools that read, check and print a store directory

The C loops do the work per message; the Python code decides, recovers and reads. They share the control block
(csrc/store/control/control_block.h). It may be lost at any time: recovery rebuilds it from the files.
"""
