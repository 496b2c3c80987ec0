"""Tests of `pystate.formats`."""
