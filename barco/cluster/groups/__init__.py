"""The machine of consumer groups: members, and who reads which slice."""
