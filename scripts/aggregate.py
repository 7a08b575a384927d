"""Main effects of a study, from its run directories; the program itself is `ftx.aggregate`."""

import sys

from ftx.aggregate import start

if __name__ == "__main__":
    sys.exit(start(sys.argv[1:]))
