"""How the core is mounted in Spark: in order, and out of order over Arrow or pandas."""
