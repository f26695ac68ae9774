"""Plans of what a query reads, and stored chunks as Arrow batches."""
