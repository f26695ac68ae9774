"""Consumers of a group: who they are to the brokers, what they read, how they fail."""
