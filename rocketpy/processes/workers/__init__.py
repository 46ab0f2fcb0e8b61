"""The main functions of the broker's workers, and the snapshot for metrics."""
