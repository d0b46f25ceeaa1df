"""What the engine costs beside the join itself: batches, decisions, state, memory and time.

`adaptation` and `cost_model` run joins of `emulation`, whose nodes overlap even on a machine with few cores.
"""
