"""Tools that read and check a store directory; they never write."""
