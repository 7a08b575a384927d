"""The base model with its tokenizer, and the adapter on top of it."""
