"""Rings that grow and shrink while they are written to: a process, with a real machine, for each
range that a broker holds; the real planner over routes that travel; clients and readers.

`world` has the processes and the network between those of one range, `control` what goes from
broker to broker (routes, the plan, the words by which a joiner is taught, states), `clients` who
writes and reads (E1, E7), `plan` the faults of a seed, `mutants` one rule less each.
"""
