"""How partial results travel: what runs in a task, and how the output of one stage reaches the next. Free of Spark.

`stages.py` has the exchanges: `inline` runs all hops in one task, `hops` runs each in a stage of its own. Anything that
can run stages (`Stage`) can run both. A new exchange is another function there, made of tasks from `tasks.py`; it is
named in `watersmeet/spark/run/exchange.py`. `message.py` is what travels.
"""
