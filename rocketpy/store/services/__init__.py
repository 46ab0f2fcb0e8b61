"""The services of the store worker: dispatch, flush, allocation of log files, cleaning of expired files and deleted
queues."""
