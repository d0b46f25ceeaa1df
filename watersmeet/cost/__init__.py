"""The cost of strategies: the papers' equations, their parameters as measured, and the load of nodes.

`equations` has the equations as published, `strategy_costs` the costs by which strategies are chosen. Both take the
`parameters` that a running join measured, or that `pace` fitted to a sample.
"""
