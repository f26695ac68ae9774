"""Where a broker hears, while it runs, of which brokers the cluster shall consist."""
