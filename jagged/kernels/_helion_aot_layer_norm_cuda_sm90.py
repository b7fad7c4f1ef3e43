"""Configs of layer_norm.py on CUDA devices of compute capability 9.0.

Written by `python -m jagged.tuning`; the format is described in `jagged/tuning/tables.py`.
"""


POINTS_forward = {
    (2, 32, 4): 0,
    (2, 32, 16): 1,
    (2, 32, 64): 2,
    (2, 32, 512): 3,
    (2, 128, 4): 4,
    (2, 128, 16): 5,
    (2, 128, 64): 6,
    (2, 128, 128): 7,
    (2, 128, 256): 8,
    (2, 128, 512): 9,
    (2, 512, 64): 10,
    (2, 4096, 64): 11,
    (4, 32, 4): 0,
    (4, 32, 16): 1,
    (4, 32, 64): 2,
    (4, 32, 512): 3,
    (4, 128, 4): 12,
    (4, 128, 16): 13,
    (4, 128, 64): 14,
    (4, 128, 128): 15,
    (4, 128, 256): 16,
    (4, 512, 64): 17,
    (4, 4096, 64): 11,
}


def key_forward(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
    if width < 4096:
        if length < 512:
            if width < 2048:
                if length < 16:
                    if width < 128:
                        return 0
                    if itemsize < 4:
                        return 4
                    return 12
                if length < 256:
                    if width < 512:
                        if length < 64:
                            if width < 128:
                                return 1
                            if itemsize < 4:
                                return 5
                            return 13
                        if width < 64:
                            return 2
                        if length < 128:
                            if width < 128:
                                return 2
                            if itemsize < 4:
                                return 6
                            return 14
                        if itemsize < 4:
                            return 7
                        return 15
                    if itemsize < 4:
                        if length < 32:
                            return 5
                        return 10
                    if length < 32:
                        return 13
                    return 17
                if width < 64:
                    return 3
                if itemsize < 4:
                    return 8
                return 16
            if length < 8:
                if itemsize < 4:
                    return 4
                return 12
            return 11
        if width < 128:
            return 3
        if itemsize < 4:
            return 9
        if width < 2048:
            return 16
        return 11
    return 11


def autotune_forward(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
        {'block_sizes': [8], 'num_warps': 1, 'form': 'rows', 'constants': {'BLOCK': 8}},
        {'block_sizes': [32], 'num_warps': 1, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 8}},
        {'block_sizes': [32], 'num_warps': 1, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 16}},
        {'block_sizes': [32], 'num_warps': 8, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 64}},
        {'block_sizes': [2], 'num_warps': 1, 'form': 'rows', 'constants': {'BLOCK': 8}},
        {'block_sizes': [32], 'num_warps': 1, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 2}},
        {'block_sizes': [32], 'num_warps': 4, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 8}, 'range_num_stages': [0, 3, 0, 0]},
        {'block_sizes': [32], 'num_warps': 4, 'form': 'row', 'constants': {'DEEP': 4, 'BLOCK': 8}},
        {'block_sizes': [32], 'num_warps': 8, 'form': 'row', 'constants': {'DEEP': 4, 'BLOCK': 16}, 'maxnreg': 80},
        {'block_sizes': [32], 'num_warps': 16, 'form': 'row', 'constants': {'DEEP': 4, 'BLOCK': 32}},
        {'block_sizes': [32], 'num_warps': 4, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 2}},
        {'block_sizes': [32], 'num_warps': 16, 'form': 'row', 'constants': {'DEEP': 1, 'BLOCK': 2}},
        {'block_sizes': [1], 'num_warps': 1, 'form': 'rows', 'constants': {'BLOCK': 8}},
        {'block_sizes': [32], 'num_warps': 1, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 4}},
        {'block_sizes': [32], 'num_warps': 8, 'form': 'row', 'constants': {'DEEP': 4, 'BLOCK': 8}},
        {'block_sizes': [32], 'num_warps': 16, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 16}},
        {'block_sizes': [32], 'num_warps': 16, 'form': 'row', 'constants': {'DEEP': 4, 'BLOCK': 16}},
        {'block_sizes': [32], 'num_warps': 8, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 2}},
    ]
    return _C[key_forward(itemsize, width, length)]


POINTS_backward = {
    (2, 32, 4): 0,
    (2, 32, 16): 1,
    (2, 32, 64): 2,
    (2, 32, 512): 3,
    (2, 128, 4): 4,
    (2, 128, 16): 5,
    (2, 128, 64): 6,
    (2, 128, 128): 7,
    (2, 128, 256): 8,
    (2, 128, 512): 9,
    (2, 512, 64): 10,
    (2, 4096, 64): 11,
    (4, 32, 4): 0,
    (4, 32, 16): 1,
    (4, 32, 64): 2,
    (4, 32, 512): 3,
    (4, 128, 4): 12,
    (4, 128, 16): 5,
    (4, 128, 64): 13,
    (4, 128, 128): 8,
    (4, 128, 256): 14,
    (4, 128, 512): 14,
    (4, 512, 64): 15,
    (4, 4096, 64): 11,
}


def key_backward(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
    if width < 4096:
        if length < 512:
            if width < 2048:
                if length < 16:
                    if width < 128:
                        return 0
                    if itemsize < 4:
                        return 4
                    return 12
                if length < 256:
                    if width < 512:
                        if length < 64:
                            if width < 128:
                                return 1
                            return 5
                        if width < 64:
                            return 2
                        if length < 128:
                            if width < 128:
                                return 2
                            if itemsize < 4:
                                return 6
                            return 13
                        if itemsize < 4:
                            return 7
                        return 8
                    if length < 32:
                        return 5
                    if itemsize < 4:
                        return 10
                    return 15
                if width < 64:
                    return 3
                if itemsize < 4:
                    return 8
                return 14
            if length < 8:
                if itemsize < 4:
                    return 4
                return 12
            return 11
        if width < 128:
            return 3
        if itemsize < 4:
            return 9
        return 14
    return 11


def autotune_backward(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
        {'num_warps': 2, 'form': 'rows', 'constants': {'BLOCK': 4, 'ROWS': 16, 'TURNS': 16}},
        {'num_warps': 2, 'form': 'rows', 'constants': {'BLOCK': 8, 'ROWS': 16, 'TURNS': 8}},
        {'block_sizes': [32], 'num_warps': 2, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 16, 'TURNS': 4}},
        {'block_sizes': [32], 'num_warps': 8, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 64, 'TURNS': 1}},
        {'num_warps': 2, 'form': 'rows', 'constants': {'BLOCK': 4, 'ROWS': 4, 'TURNS': 16}},
        {'block_sizes': [32], 'num_warps': 1, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 2, 'TURNS': 8}},
        {'block_sizes': [32], 'num_warps': 2, 'form': 'row', 'constants': {'DEEP': 1, 'BLOCK': 8, 'TURNS': 4}},
        {'block_sizes': [32], 'num_warps': 8, 'form': 'row', 'constants': {'DEEP': 1, 'BLOCK': 32, 'TURNS': 1}, 'maxnreg': 64},
        {'block_sizes': [32], 'num_warps': 8, 'form': 'row', 'constants': {'DEEP': 1, 'BLOCK': 32, 'TURNS': 1}},
        {'block_sizes': [32], 'num_warps': 16, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 32, 'TURNS': 1}, 'maxnreg': 64},
        {'block_sizes': [32], 'num_warps': 4, 'form': 'row', 'constants': {'DEEP': 1, 'BLOCK': 2, 'TURNS': 1}},
        {'block_sizes': [32], 'num_warps': 16, 'form': 'row', 'constants': {'DEEP': 1, 'BLOCK': 2, 'TURNS': 1}},
        {'num_warps': 1, 'form': 'rows', 'constants': {'BLOCK': 8, 'ROWS': 1, 'TURNS': 16}},
        {'block_sizes': [32], 'num_warps': 2, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 4, 'TURNS': 2}},
        {'block_sizes': [32], 'num_warps': 16, 'form': 'row', 'constants': {'DEEP': 1, 'BLOCK': 64, 'TURNS': 1}},
        {'block_sizes': [32], 'num_warps': 8, 'form': 'row', 'constants': {'DEEP': 1, 'BLOCK': 2, 'TURNS': 1}},
    ]
    return _C[key_backward(itemsize, width, length)]
