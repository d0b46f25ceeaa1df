"""Ding, Rundensteiner and Heineman, "MJoin: A Metadata-Aware Stream Join Operator" (2003), in plain Python.

`mjoin` and `xjoin` are the operators: a `binary_join` each, with `state` in buckets and a `schedule` of what is read
next. `runs` measures them on the `feed`, `plots` draws, and `figures` is the program.
"""
