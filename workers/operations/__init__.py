"""The shard as named operations, and everyone who can be asked for them."""
