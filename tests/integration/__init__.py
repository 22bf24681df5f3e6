"""srj in Spark against real databases."""
