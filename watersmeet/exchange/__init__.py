"""How partial results travel: what runs in a task, and how the output of one stage reaches the next. Free of Spark.

`inline` runs all hops in one task, `hops` each in a stage of its own; whoever has stages (`watersmeet.exchange.stages`)
can run both.
"""
