"""The other workers, of this broker and of others: who leads what, and connections to them."""
