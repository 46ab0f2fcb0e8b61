"""rocketpy on Spark."""
