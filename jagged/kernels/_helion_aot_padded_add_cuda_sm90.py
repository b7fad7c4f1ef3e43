"""Configs of padded_add.py on CUDA devices of compute capability 9.0.

Written by `python -m jagged.tuning`; the format is described in `jagged/tuning/tables.py`.
"""


POINTS__add_padded = {
    (2, 128, 256): 0,
    (2, 32, 16): 1,
    (2, 1, 256): 2,
    (4, 128, 256): 0,
    (4, 32, 256): 1,
    (4, 1, 256): 2,
}


def key__add_padded(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
    if itemsize < 4:
        if width < 2:
            return 2
        if length < 32:
            return 1
        if width < 4:
            return 2
        if width < 128:
            if length < 64:
                return 1
            if width < 8:
                return 2
            if width < 64:
                if length < 128:
                    return 1
                if width < 16:
                    return 2
                return 0
            return 0
        return 0
    if width < 8:
        return 2
    if width < 64:
        return 1
    return 0


def autotune__add_padded(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
        {'block_sizes': [16, 128], 'num_warps': 4},
        {'block_sizes': [64, 32], 'num_warps': 4},
        {'block_sizes': [1024, 1], 'num_warps': 4},
    ]
    return _C[key__add_padded(itemsize, width, length)]
