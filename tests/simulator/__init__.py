"""Whole clusters in one process and no time: the real machines, simulated surroundings.

    python -m tests.simulator --seeds 100 --seconds 60      # see --help

`world` has the clock, the network and the brokers; `disk` what survives a crash; `oracle` the
invariants I1 to I14; `plan` the faults of a seed; `mutants` one rule less each; `explorer` every
order of events within small bounds.
"""
