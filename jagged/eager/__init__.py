"""The ops in vectorised plain torch, one module an op with `forward` and `backward`: what runs on the CPU.

Arguments are checked by `jagged.ops` before; nothing here is public but for measurements.
"""
