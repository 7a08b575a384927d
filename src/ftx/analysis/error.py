"""The error of an analysis that cannot be done as asked."""

from ftx.errors import FtxError


class AnalysisError(FtxError):
    """Numbers that do not allow the analysis asked for; the message says which and what to do."""
