"""Pure state machines of the control plane: input and `now` in, a new state and a reply out."""
