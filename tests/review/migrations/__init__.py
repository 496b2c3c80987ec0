"""Tests of the migrations of the REview state."""
