"""From parsed arguments to running workers: configuration, store opening, the list of workers, memory before the
fork."""
