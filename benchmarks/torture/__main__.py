"""`python -m benchmarks.torture`."""

import sys

from benchmarks.torture import main

if __name__ == "__main__":
    sys.exit(main())
