"""Stored chunks as Arrow's record batches, for whoever makes tables of them: Spark, and exports."""
