"""What the fault tests are made of: a broker, clients, a checker, cut disks, crash images."""
