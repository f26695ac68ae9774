"""Events that are to be seen later, at the leader of their slices."""
