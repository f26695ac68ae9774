"""What a broker that leaves has alone: who has what, who copies it, when it may go."""
