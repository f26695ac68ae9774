"""The machine of one shard range on one broker, made of its parts."""
