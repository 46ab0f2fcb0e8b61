"""The mains of the broker's workers, and the snapshot of them that metrics show."""
