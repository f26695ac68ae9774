"""Parts of group consumption over HTTP: positions, and polls of other brokers' slices."""
