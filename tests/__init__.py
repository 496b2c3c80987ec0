"""The tests of pystate: this package mirrors `pystate/`, one file per module, plus `bench`."""
