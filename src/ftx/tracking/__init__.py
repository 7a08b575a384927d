"""Where curves go beside history.jsonl."""
