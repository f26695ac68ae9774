"""Queues at the leader of a slice: who has which event, and what is acknowledged."""
