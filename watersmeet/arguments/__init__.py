"""What people write, in Python's own types: numbers, durations and sizes, read and checked."""
