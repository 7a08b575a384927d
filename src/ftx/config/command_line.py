"""What a person typed: overrides, flags, and the folders that options come from. Nothing is composed here."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from ftx.config.keys import GROUPS, PROSE, is_free
from ftx.errors import ConfigError

_SWITCHES = {"-m": "multirun", "--multirun": "multirun", "-h": "help", "--help": "help", "--json": "json"}
# Hydra's views of a configuration. Its other flags choose another program than ftx's and are refused.
_VIEWS = {"--cfg": "job", "-c": "job", "--info": "all", "-i": "all"}
_VIEW_OPTIONS = ("job", "hydra", "all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
_VIEW_FLAGS = ("--resolve", "--hydra-help", "--version")

AUTO = "auto"
_VERBS = {
    "resume": "give a run directory, or auto for the newest unfinished run of these settings",
    "resume_force": "true or false",
    "reproduce": "give a run directory",
}

_SOURCES = {"data.path": "file", "data.name": "hub"}


@dataclass
class CommandLine:
    """What a person typed, sorted."""

    overrides: list[str] = field(default_factory=list)
    multirun: bool = False
    help: bool = False
    json: bool = False
    config_dir: str | None = None
    view: list[str] = field(default_factory=list)
    resume: str | None = None
    """A run directory to go on with, or auto."""
    resume_force: bool = False
    reproduce: str | None = None
    """A run directory whose configuration is trained anew."""

    @property
    def recorded(self) -> str | None:
        """The run directory that the configuration comes from, instead of conf/."""
        return self.reproduce or (self.resume if self.resume != AUTO else None)


def refuse_view(line: CommandLine) -> None:
    """For entry points that show no bare configuration. Raises ConfigError where one was asked for."""
    if line.view:
        raise ConfigError([f"{line.view[0]}: a view of one configuration; python -m ftx.train shows it"])


def parse_command_line(arguments: Sequence[str]) -> CommandLine:
    """Sort arguments into overrides, our flags and Hydra's, wherever they stand.

    Raises:
        ConfigError: a flag that ftx does not know, or one without its value.
    """
    line = CommandLine()
    queue = list(arguments)
    while queue:
        word = queue.pop(0)
        flag, equals, attached = word.partition("=")
        if not word.startswith("-"):
            line.overrides.append(word)
        elif word in _SWITCHES:
            setattr(line, _SWITCHES[word], True)
        elif flag in ("--config-dir", "-cd"):
            if not equals and not queue:
                raise ConfigError([f"{flag} needs a folder"])
            line.config_dir = attached if equals else queue.pop(0)
        elif flag in _VIEWS:
            named = attached if equals else queue.pop(0) if queue and queue[0] in _VIEW_OPTIONS else _VIEWS[flag]
            line.view += [flag, named]
        elif word in _VIEW_FLAGS:
            line.view.append(word)
        else:
            raise ConfigError([f"{word}: no such flag; settings are typed as key=value, see --help"])
    if line.json and line.view:
        raise ConfigError([f"--json has no meaning with {line.view[0]}, which prints Hydra's own text"])
    _take_verbs(line)
    if line.recorded is None:
        line.overrides = with_source(line.overrides)
    return line


def _take_verbs(line: CommandLine) -> None:
    """Take `resume=`, `resume_force=` and `reproduce=` out of the overrides: they say how to start, and set nothing."""
    words: dict[str, str] = {}
    for word in list(line.overrides):
        name, equals, value = word.partition("=")
        if name in _VERBS and equals:
            line.overrides.remove(word)
            words[name] = value
    problems = [f"{name}= is empty: {_VERBS[name]}" for name, value in words.items() if not value]
    force = words.get("resume_force", "false")
    if force not in ("true", "false"):
        problems.append(f"resume_force={force}: expected true or false")
    if "resume" in words and "reproduce" in words:
        problems.append("resume= and reproduce=: one continues a run, the other repeats it; choose one")
    if "resume_force" in words and words.get("resume", AUTO) == AUTO:
        problems.append("resume_force goes with resume=RUN_DIRECTORY")
    if words and (line.multirun or line.view):
        flag = "-m" if line.multirun else line.view[0]
        remedy = ": a study goes on by itself when its command is given again" if line.multirun else ""
        problems.append(f"{next(iter(words))}= does not go with {flag}{remedy}")
    if problems:
        raise ConfigError(problems)
    line.resume, line.reproduce = words.get("resume"), words.get("reproduce")
    line.resume_force = force == "true"


def with_source(words: Sequence[str]) -> list[str]:
    """The overrides, with the `data=` that `data.path=FILE` or `data.name=NAME` can only mean.

    A study's file may choose the data itself, so beside one, and beside a typed `data=`, nothing is added.
    """
    typed = {word.partition("=")[0].lstrip("+~") for word in words}
    meant = next((option for key, option in _SOURCES.items() if key in typed), None)
    return list(words) if meant is None or typed & {"data", "study"} else [f"data={meant}", *words]


def packaged_config_dir() -> Path:
    """The folder of ftx's own conf/: inside an installed wheel, or at the top of the checkout."""
    package = Path(str(resources.files("ftx")))
    inside = package / "conf"
    return inside if inside.is_dir() else package.parents[1] / "conf"


def own_config_dir(line: CommandLine) -> Path | None:
    """The person's config folder, which adds options to any group: --config-dir, else ./conf."""
    if line.config_dir is not None:
        folder = Path(line.config_dir).expanduser().resolve()
        if not folder.is_dir():
            raise ConfigError([f"--config-dir {line.config_dir}: no such folder"])
        return folder
    beside = Path.cwd() / "conf"
    return beside if beside.is_dir() and beside.resolve() != packaged_config_dir().resolve() else None


def group_options(line: CommandLine) -> dict[str, list[str]]:
    """The options of every group, by the files that hold them; nothing is composed."""
    folders = [packaged_config_dir(), own_config_dir(line)]
    return {
        group: sorted({file.stem for folder in folders if folder for file in (folder / group).glob("*.yaml")})
        for group in GROUPS
    }


def hydra_overrides(line: CommandLine) -> list[str]:
    """The overrides as Hydra must see them.

    Keys of one's own become addable, prose is quoted, and the person's folder is put on the search path.
    """
    return [*(as_hydra_reads(word) for word in line.overrides), *search_path(line)]


def search_path(line: CommandLine) -> list[str]:
    """The override that adds the person's folder, if there is one."""
    folder = own_config_dir(line)
    return [] if folder is None else [f"hydra.searchpath=[{quoted(f'file://{folder}')}]"]


def as_hydra_reads(word: str) -> str:
    """One override as Hydra must see it."""
    name, _, value = word.partition("=")
    if is_free(name):
        return f"++{word}"
    if name in PROSE and value[:1] not in ("'", '"') and value != "null":
        # Commas, quotes and brackets in a sentence are not a list of levels.
        return f"{name}={quoted(value)}"
    return word


def quoted(text: str) -> str:
    """A text as Hydra's override grammar quotes it."""
    # Backslashes count only in front of a quote, the closing one included.
    escaped = re.sub(r"(\\*)(\'|$)", lambda found: found[1] * 2 + (f"\\{found[2]}" if found[2] else ""), text)
    return f"'{escaped}'"
