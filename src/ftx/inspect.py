"""python -m ftx.inspect: what the model will really see, and what is wrong with it; nothing is trained or written.

    python -m ftx.inspect                                                the bundled data
    python -m ftx.inspect data.path=rows.jsonl model=smollm2             rows of your own, through that model's template
    python -m ftx.inspect data.path=rows.jsonl data.max_seq_len=256 --rows 5
    python -m ftx.inspect data.path=rows.jsonl --json                    the same for machines

It takes the overrides of ftx.train. Rows are shown as they come out of the collator, what carries loss in colour (in
double brackets where there are no colours). Findings are graded ok, note or problem; a problem refuses the run.

Exit status: 0 no problem, 2 a problem, or refused.
"""

import sys
from collections.abc import Sequence

from rich.console import Console

from ftx.config.checks import announcements
from ftx.config.command_line import parse_command_line, refuse_view
from ftx.config.compose import compose_run
from ftx.errors import ConfigError
from ftx.record.strict_json import dumps
from ftx.report.console import REFUSED, exit_status_of, say

ROWS = 2  # of each split


def start(arguments: Sequence[str]) -> int:
    """Inspect and print; returns the exit status."""
    return exit_status_of(lambda: _inspect(*_without_rows(arguments)))


def _without_rows(arguments: Sequence[str]) -> tuple[list[str], int]:
    """The command line without `--rows N`, and N."""
    words, rows = list(arguments), ROWS
    for at, word in enumerate(words):
        flag, equals, attached = word.partition("=")
        if flag == "--rows":
            given = attached if equals else next(iter(words[at + 1 : at + 2]), "")
            if not given.isdecimal():
                raise ConfigError([f"--rows needs a whole number of at least 0, got {given or 'nothing'}"])
            return words[:at] + words[at + (1 if equals else 2) :], int(given)
    return words, rows


def _inspect(words: Sequence[str], rows: int) -> int:
    line = parse_command_line(words)
    if line.help:
        print(__doc__)
        return 0
    refuse_view(line)
    if line.multirun:
        raise ConfigError(["-m: ftx.inspect looks at one run; python -m ftx.plan -m says what it finds in a study"])
    config = compose_run(line)
    from ftx.job.hardware import fallback_notice, pin_device, resolve_hardware
    from ftx.job.inspection import inspection
    from ftx.job.preparation import read_inputs
    from ftx.report.inspection import inspection_report

    pin_device(config.hardware.device)
    settled = resolve_hardware(config)
    found = inspection(settled, read_inputs(settled, lenient=True), rows)
    if line.json:
        print(dumps(found, indent=2))
    else:
        console = Console()
        say(console, *announcements(settled), *fallback_notice(config, settled))
        say(console, *inspection_report(found, colours=console.color_system is not None))
    return REFUSED if any(finding["grade"] == "problem" for finding in found["findings"]) else 0


if __name__ == "__main__":
    sys.exit(start(sys.argv[1:]))
