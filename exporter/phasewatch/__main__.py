"""`python -m phasewatch`."""

import sys

from phasewatch.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
