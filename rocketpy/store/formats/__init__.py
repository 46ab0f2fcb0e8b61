"""The store's files beside the log as values: consume queue units and their extensions, index headers, checkpoint,
delay levels."""
