"""The cost of strategies: the papers' equations, their parameters as measured, and the load of nodes.

`equations.py` has the equations as published, `cost_model.py` the costs by which strategies are chosen. Both take
`parameters.py`: measured in a running join, or fitted to a sample. `load.py` weighs what the tasks of a node used.
"""
