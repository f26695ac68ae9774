"""What a replica is told, what it asks for, and what it holds of each generation."""
