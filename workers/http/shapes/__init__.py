"""What bodies and answers look like, as JSON Schemas for /openapi.json."""
