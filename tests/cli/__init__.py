"""Tests of `pystate.cli`, the command line."""
