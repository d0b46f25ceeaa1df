"""The Spark runtime: inputs, tasks, the batch protocol, sinks and the user's handle."""
