"""Long-running fuzzers, each a module of its own: ``python -m fuzz.NAME --seconds N --seed N``.

The same seed on the same commit tries the same things in the same order, so a failure prints what replays it.
"""
