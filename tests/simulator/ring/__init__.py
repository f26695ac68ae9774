"""Rings that grow and shrink, as the control plane sees it: registers, routes, targets, and brokers
that join in any order, die, and are followed.

What a register decides is taken for granted here (`tests.simulator` is about that): one value for
each generation, proposed by whoever leads it. Everything else is late, or gone.
"""
