"""Tests of the runtime of effects."""
