"""Tests of `pystate.review`."""
