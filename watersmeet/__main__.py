"""`python -m watersmeet`: the command line."""

import sys

from watersmeet.cli import main

if __name__ == "__main__":
    sys.exit(main())
