"""How fast the ops are against the best that a user could pick instead: `python -m bench.run`."""
