"""Tests of `pystate.testing`, and, with it, of the engine."""
