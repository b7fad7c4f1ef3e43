"""The ops in vectorised plain torch: what runs on the CPU.

One module an op, with `forward` and `backward`.
Arguments are checked by `jagged.ops` before; nothing here is public but for measurements.
"""
