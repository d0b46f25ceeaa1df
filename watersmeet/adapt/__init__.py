"""Choosing strategies by predicted cost; all of it prices strategies by `pricing.py`.

Before a join starts: `advice.py` predicts costs at multiples of the rate (`forecast.py`) from a sample and charts them;
`findings.py` checks the definition. While it runs: `auto.py` chooses a strategy before each batch, and `adaptation.py`
decides when to change it.

Invariant: advice and `Auto` choose by the same code, so they can't disagree.
"""
