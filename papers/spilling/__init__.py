"""Jbantova, "State spilling policies for state intensive continuous query plan evaluation" (2007), on this engine.

`plans` are the thesis' trees of joins and `streams` their input; `runs` runs one, `plots` draws, and `figures` is the
program.
"""
