"""The machine of the gossip: who is alive, and facts that reach everybody."""
