"""What the broker's Python asks of the store: single messages, units, pulls, times."""
