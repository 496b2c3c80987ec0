"""Tests of `pystate.tables`."""
