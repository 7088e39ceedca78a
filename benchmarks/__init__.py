"""Benchmarks: redrive beside its peers, on a real broker. `python -m benchmarks --help`."""
