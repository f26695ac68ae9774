"""Brokers as the client sees them: connections, bytes, batches, the ring."""
