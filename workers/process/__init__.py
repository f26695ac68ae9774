"""The worker as a process: what it is built of, its memory, its loop, its supervisor."""
