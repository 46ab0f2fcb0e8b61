"""Opens and closes a store: takes the lock, decides how far the control block is trusted, and recovers the rest from
the files."""
