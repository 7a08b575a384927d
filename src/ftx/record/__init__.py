"""What is written about a run, and how it is read back: plain dicts, strict JSON, no configuration types.

Imports the standard library, filelock and psutil only, so that a ledger can be read anywhere and old
records survive changes of the configuration's schema.
"""
