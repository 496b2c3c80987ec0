"""``python -m pystate``: the command line of :mod:`pystate.cli`."""

import sys

from pystate.cli import main

if __name__ == "__main__":
    sys.exit(main())
