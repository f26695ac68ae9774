"""What connections between supervisors are made of."""
