"""How the core is mounted in Spark: in order, out of order over Arrow or pandas, and inside foreachBatch."""
