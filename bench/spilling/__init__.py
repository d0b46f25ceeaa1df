"""Joins under a load that they can't keep up with."""
