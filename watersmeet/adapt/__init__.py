"""Choosing strategies by predicted cost.

Before a join starts: `advice` predicts costs at multiples of the rate (`forecast`) from a sample, `findings` checks the
definition. While it runs: `auto` chooses a strategy before each batch, `adaptation` decides when to change it, and
`overload` warns if the join can't keep up. All of them price strategies by `pricing`.
"""
