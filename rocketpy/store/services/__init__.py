"""The store worker's duties beside dispatch: flush, allocation of log files, cleaning of expired files and deleted
queues."""
