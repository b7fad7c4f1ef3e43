"""Configs of row_add.py on CUDA devices of compute capability 9.0.

Written by `python -m jagged.tuning`; the format is described in `jagged/tuning/tables.py`.
"""


POINTS__add_row = {
    (2, 128, 256): 0,
    (2, 32, 16): 1,
    (2, 32, 4): 2,
    (2, 1, 256): 3,
    (4, 128, 256): 4,
    (4, 32, 256): 2,
    (4, 1, 256): 5,
}


def key__add_row(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
    if itemsize < 4:
        if length < 8:
            return 2
        if width < 2:
            return 3
        if length < 32:
            return 1
        if width < 4:
            return 3
        if width < 128:
            if length < 64:
                return 1
            if width < 8:
                return 3
            if width < 64:
                if length < 128:
                    return 1
                if width < 16:
                    return 3
                return 0
            return 0
        return 0
    if width < 8:
        return 5
    if width < 64:
        return 2
    return 4


def autotune__add_row(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
        {'block_sizes': [16, 128], 'num_warps': 1},
        {'block_sizes': [128, 32], 'num_warps': 2},
        {'block_sizes': [64, 32], 'num_warps': 2},
        {'block_sizes': [1024, 1], 'num_warps': 4},
        {'block_sizes': [16, 128], 'num_warps': 2},
        {'block_sizes': [512, 1], 'num_warps': 4},
    ]
    return _C[key__add_row(itemsize, width, length)]
