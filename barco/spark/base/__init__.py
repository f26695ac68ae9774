"""What reads and writes have in common: options, columns, requests, Python processes."""
