"""The services of the store worker: dispatch, flush, housekeeping (log files ahead, cleaning of expired files), timers,
removal of deleted queues."""
