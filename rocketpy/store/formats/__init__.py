"""File formats of the store except the log's: consume queue units and their extensions, index files, checkpoint."""
