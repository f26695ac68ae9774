"""Requests, answers and routes as values, and what all handlers have in common."""
