"""Opening and closing a store: the lock, how much of the control block can be trusted, what is found again from the
files."""
