"""A shard's files behind one object: recovery, retention, scrub, generations."""
