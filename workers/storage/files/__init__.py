"""Files of a shard as such: names, segments, journals, and disk work off the append path."""
