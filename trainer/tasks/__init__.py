"""Tasks: prompts by index and split, a verifier, gold answers (`base`); one file a task."""
