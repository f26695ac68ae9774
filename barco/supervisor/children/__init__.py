"""What a supervisor has of each of its processes: how it is started, its channel, its words."""
