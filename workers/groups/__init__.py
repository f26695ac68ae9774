"""Consumer groups at the owner of a slice: who reads what, and how far each group is."""
