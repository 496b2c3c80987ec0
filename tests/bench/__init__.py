"""The figures of pystate: what it costs, next to what cannot be avoided and to what others cost.

``python -m tests.bench`` measures and prints one table. Nothing here is a test of correctness or of speed: a figure
that misses its goal is printed as missed and the exit code stays 0.

=================  ============================================================
module             what it holds
=================  ============================================================
harness            rows, ratios, interleaved rounds, the registry of figures
peers              one adapter for each other store
workload           keys, values, and what several figures do to a pystate store
bare_group         a group commit without a store, the floor of many threads
counting_files     a ``Files`` that counts bytes, syncs and space while passing on
memory_child       the process whose memory is measured
figures_*          the figures, grouped
report             the table, and the same as JSON
=================  ============================================================
"""
