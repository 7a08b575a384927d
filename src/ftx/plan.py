"""python -m ftx.plan: what `python -m ftx.train` would run with the same overrides; nothing is trained or written.

    python -m ftx.plan -m lora.rank=8,16,32 seed=0,1,2
    python -m ftx.plan -m study=rank_and_lr --json          the same for machines
    python -m ftx.plan -m study=rank_and_lr --commands      one complete command line per trial, for a job array

Exit status: 0 planned, 2 refused.
"""

import shlex
import sys
from collections.abc import Sequence

from rich.console import Console

from ftx.config.command_line import parse_command_line, refuse_view
from ftx.config.compose import open_composer
from ftx.errors import ConfigError
from ftx.record.strict_json import dumps
from ftx.report.console import exit_status_of, say


def start(arguments: Sequence[str]) -> int:
    """Plan and print; returns the exit status."""
    words = [word for word in arguments if word != "--commands"]
    return exit_status_of(lambda: _plan(words, commands=len(words) < len(arguments)))


def _plan(words: Sequence[str], *, commands: bool) -> int:
    line = parse_command_line(words)
    if line.help:
        print(__doc__)
        return 0
    refuse_view(line)
    if commands and line.json:
        raise ConfigError(["--commands and --json are two forms of the same plan: give one of them"])
    from ftx.study.outlook import look
    from ftx.study.planning import OWN_SWEEPER, plan_study, sketch_study, sweeper_of

    with open_composer(line) as composer:
        if line.multirun and sweeper_of(composer) != OWN_SWEEPER:
            raise ConfigError([f"hydra/sweeper={sweeper_of(composer)} makes its own plan; ftx.plan shows ftx's"])
        plan = plan_study(sketch_study(line, composer), composer)
    outlook = look(plan)
    flags = ["--config-dir", line.config_dir] if line.config_dir else []
    if commands:
        for trial in outlook.plan.trials:
            print(shlex.join(["python", "-m", "ftx.train", *flags, *trial.overrides]))
        return 0
    from ftx.report.plan import plan_report
    from ftx.study.summary import summary

    found = summary(outlook)
    if line.json:
        print(dumps(found, indent=2))
        return 0
    say(Console(), *plan_report(outlook.record, outlook.plan.notes, found))
    return 0


if __name__ == "__main__":
    sys.exit(start(sys.argv[1:]))
