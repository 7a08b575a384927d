"""ftx: LLM fine-tuning experiments whose differences can be believed."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("ftx")
except PackageNotFoundError:  # running from a source tree that was never installed
    __version__ = "0+unknown"
