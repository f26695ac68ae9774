"""The broker's parent process: starts, watches and informs the workers; holds no events."""
