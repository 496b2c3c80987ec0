"""Tests of `pystate.engine`, and of the public interface of a store as a whole."""
