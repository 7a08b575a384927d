"""Measure what ftx costs, on the machine at hand.

    python scripts/benchmark.py data [--rows N] [--repeats R]             reading, splitting and tokenising rows
    python scripts/benchmark.py aggregate [--runs N] [--shape studies|one] [--repeats R]    reading run directories

Each takes --json, and --folder DIR to keep what it writes. What each measures stands in scripts/benchmarks/.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks import aggregate, data

KINDS = {"data": data, "aggregate": aggregate}


def main() -> int:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="kind", required=True)
    for name, kind in KINDS.items():
        command = commands.add_parser(
            name, description=kind.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        kind.add_options(command)
        command.add_argument("--folder", metavar="DIR", help="write there and keep it (default: a temporary folder)")
        command.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        try:
            found, table = KINDS[options.kind].measure(options, Path(options.folder or temporary))
        except ValueError as error:
            parser.error(str(error))
    if options.json:
        print(json.dumps(found))
    else:
        Console(width=None if sys.stdout.isatty() else 120).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
