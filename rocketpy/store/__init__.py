"""The message store: files only; no sockets, no trio, no request codes. Formats are the Java broker's, byte for byte.

Who runs what:

    supervisor   `open_store` (lock, recovery, `abort`) before the workers are forked, `close_store` after they ended
    send         the CommitLog's end (csrc/store/commitlog.c)
    store        `StoreService`: dispatch, flush, allocation, cleaning
    pull         units and log slices (csrc/store/consume_queue.c, csrc/store/log_view.c)
    manager      `MessageStore`: everything that Python asks of the store
    nobody       `reader`, `state`, `verify`, `dump`: a directory read, checked and shown from outside, for tools

The C loops do the work per message; what is here decides, recovers and reads. All of them meet in the control block
(csrc/store/control_block.h), which can always be lost: recovery rebuilds it from the files.
"""
