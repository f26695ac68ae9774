"""The HTTP API of a worker, except produce: requests in, responses out; no sockets here."""
