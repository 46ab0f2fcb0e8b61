"""The broker's tables: plain values in memory, one owner each, saved as the reference's JSON files."""
