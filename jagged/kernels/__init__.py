"""Helion kernels, one file an op: `forward` and `backward` as in `jagged.eager`."""
