"""How a ring grows and shrinks: routes, the target, and the steps from the one to the other."""
