"""A configuration, or the problems with it, as the command line gives them."""

import pytest

from ftx.config.command_line import parse_command_line
from ftx.config.compose import compose_run
from ftx.config.schema import RunConfig
from ftx.errors import ConfigError


def composed(*words: str) -> RunConfig:
    return compose_run(parse_command_line(words))


def problems(*words: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        composed(*words)
    return caught.value.problems
