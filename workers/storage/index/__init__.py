"""What segments hold: walks over groups, sidecars, the catalog of a shard."""
