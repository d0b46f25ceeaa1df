"""A join as the core knows it: streams, windows, durations; immutable."""
