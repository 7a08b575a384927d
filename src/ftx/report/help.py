"""Our own --help: every key with its meaning, default and range, out of the schema."""

from collections.abc import Mapping, Sequence

from rich.console import Console

USAGE = """\
python -m ftx.train [GROUP=OPTION ...] [KEY=VALUE ...]

  python -m ftx.train                                        the bundled model on the bundled data
  python -m ftx.train lora.rank=32 optim.lr=5e-4             two settings changed
  python -m ftx.train model=smollm2 data=file data.path=train.jsonl
  python -m ftx.train -m lora.rank=8,16,32 seed=0,1,2        a study: the baseline and each other level, per seed
  python -m ftx.train -m study=rank_and_lr                   a study from a file; the same command continues it
  python -m ftx.plan -m study=rank_and_lr                    its runs, what is done, what they cost; nothing is trained

Flags
  -h, --help         this page
  --json             print the record on stdout as JSON, and nothing else there
  --config-dir DIR   a folder that adds options to any group (default: ./conf, if there is one)
  -m, --multirun     a study: lists of values are the levels of factors, one factor at a time
  --cfg job          show the composed configuration and stop (Hydra's; also --info, --hydra-help)

Exit status: 0 finished, 1 a run failed, 2 refused before anything started, 3 this study is already running,
130 or 143 interrupted."""


def print_help(
    console: Console,
    options: Mapping[str, Sequence[str]],
    keys: Sequence[tuple[str, str, str, str]],
) -> None:
    """Print usage, the options of each group, and every key (name, default, what is allowed, meaning)."""
    lines = [USAGE, "", "Groups"]
    lines += [f"  {group + '=':<11}{', '.join(names)}" for group, names in options.items()]
    lines += ["", "Keys, with their defaults"]
    section = ""
    for name, default, allowed, meaning in keys:
        if name.rpartition(".")[0] != section:
            section = name.rpartition(".")[0]
            lines.append("")
        lines.append(f"  {name}={default}")
        lines.append(f"      {meaning} ({allowed})")
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
