"""Effects, intervals, power and verdicts: pure functions, arrays in, frozen dataclasses out (numpy and scipy only)."""
