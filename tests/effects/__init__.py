"""Tests of `pystate.effects`."""
