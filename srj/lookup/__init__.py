"""The operator's core, without Spark: probe, queue misses, fetch them in batches, remember the answers."""
