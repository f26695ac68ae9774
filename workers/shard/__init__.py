"""What a shard holds, and what is written to it and read from it: events, topics, their ages."""
