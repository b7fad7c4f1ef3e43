"""Configs of hstu_attention.py on CUDA devices of compute capability 9.0.

Written by `python -m jagged.tuning`; the format is described in `jagged/tuning/tables.py`.
"""


POINTS_attend = {
    (2, 256, 32): 0,
    (2, 256, 64): 0,
    (2, 256, 128): 0,
    (2, 256, 256): 0,
    (2, 256, 512): 0,
    (2, 256, 1024): 0,
    (2, 256, 2048): 0,
    (2, 256, 4096): 0,
    (2, 256, 8192): 0,
    (2, 256, 16384): 0,
    (2, 128, 32): 1,
    (2, 128, 64): 1,
    (2, 128, 128): 1,
    (2, 128, 256): 1,
    (2, 128, 512): 2,
    (2, 128, 1024): 2,
    (2, 128, 2048): 3,
    (2, 128, 4096): 3,
    (2, 128, 8192): 3,
    (2, 128, 16384): 3,
    (2, 64, 32): 1,
    (2, 64, 64): 1,
    (2, 64, 128): 1,
    (2, 64, 256): 1,
    (2, 64, 512): 1,
    (2, 64, 1024): 2,
    (2, 64, 2048): 2,
    (2, 64, 4096): 4,
    (2, 64, 8192): 4,
    (2, 64, 16384): 4,
    (2, 32, 32): 1,
    (2, 32, 64): 1,
    (2, 32, 128): 1,
    (2, 32, 256): 1,
    (2, 32, 512): 1,
    (2, 32, 1024): 2,
    (2, 32, 2048): 2,
    (2, 32, 4096): 2,
    (2, 32, 8192): 2,
    (2, 32, 16384): 2,
    (2, 16, 32): 5,
    (2, 16, 128): 1,
    (4, 256, 256): 6,
    (4, 128, 256): 7,
    (4, 64, 256): 8,
}


def key_attend(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
    if itemsize < 4:
        if width < 128:
            if length < 64:
                if width < 32:
                    return 5
                return 1
            if length < 1024:
                return 1
            if width < 64:
                return 2
            if length < 4096:
                return 2
            return 4
        if width < 256:
            if length < 512:
                return 1
            if length < 2048:
                return 2
            return 3
        return 0
    if width < 128:
        return 8
    if width < 256:
        return 7
    return 6


def autotune_attend(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
        {'num_warps': 8, 'num_stages': 3, 'constants': {'BLOCK_Q': 128, 'BLOCK_K': 32}},
        {'num_warps': 4, 'num_stages': 3, 'form': 'direct', 'constants': {'BLOCK_Q': 64, 'BLOCK_K': 32}},
        {'num_warps': 4, 'num_stages': 3, 'constants': {'BLOCK_Q': 64, 'BLOCK_K': 32}},
        {'num_warps': 4, 'num_stages': 3, 'constants': {'BLOCK_Q': 64, 'BLOCK_K': 32, 'HELD': 1}, 'maxnreg': 168},
        {'num_warps': 8, 'num_stages': 3, 'constants': {'BLOCK_Q': 128, 'BLOCK_K': 64}},
        {'num_warps': 1, 'num_stages': 3, 'form': 'direct', 'constants': {'BLOCK_Q': 32, 'BLOCK_K': 16}},
        {'num_warps': 4, 'num_stages': 2, 'constants': {'BLOCK_Q': 16, 'BLOCK_K': 16}},
        {'num_warps': 8, 'num_stages': 2, 'constants': {'BLOCK_Q': 32, 'BLOCK_K': 64}},
        {'num_warps': 4, 'num_stages': 2, 'constants': {'BLOCK_Q': 32, 'BLOCK_K': 32}},
    ]
    return _C[key_attend(itemsize, width, length)]


POINTS_attend_dq = {
    (2, 256, 32): 0,
    (2, 256, 64): 0,
    (2, 256, 128): 0,
    (2, 256, 256): 0,
    (2, 256, 512): 0,
    (2, 256, 1024): 0,
    (2, 256, 2048): 0,
    (2, 256, 4096): 0,
    (2, 256, 8192): 0,
    (2, 256, 16384): 0,
    (2, 128, 32): 1,
    (2, 128, 64): 1,
    (2, 128, 128): 1,
    (2, 128, 256): 2,
    (2, 128, 512): 3,
    (2, 128, 1024): 3,
    (2, 128, 2048): 3,
    (2, 128, 4096): 3,
    (2, 128, 8192): 3,
    (2, 128, 16384): 3,
    (2, 64, 32): 2,
    (2, 64, 64): 2,
    (2, 64, 128): 2,
    (2, 64, 256): 2,
    (2, 64, 512): 2,
    (2, 64, 1024): 4,
    (2, 64, 2048): 4,
    (2, 64, 4096): 4,
    (2, 64, 8192): 4,
    (2, 64, 16384): 4,
    (2, 32, 32): 2,
    (2, 32, 64): 2,
    (2, 32, 128): 2,
    (2, 32, 256): 2,
    (2, 32, 512): 2,
    (2, 32, 1024): 4,
    (2, 32, 2048): 4,
    (2, 32, 4096): 4,
    (2, 32, 8192): 4,
    (2, 32, 16384): 4,
    (2, 16, 32): 5,
    (2, 16, 128): 2,
    (4, 256, 256): 6,
    (4, 128, 256): 7,
    (4, 64, 256): 8,
}


def key_attend_dq(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
    if itemsize < 4:
        if width < 128:
            if length < 64:
                if width < 32:
                    return 5
                return 2
            if length < 1024:
                return 2
            return 4
        if width < 256:
            if length < 256:
                return 1
            if length < 512:
                return 2
            return 3
        return 0
    if width < 128:
        return 8
    if width < 256:
        return 7
    return 6


def autotune_attend_dq(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
        {'num_warps': 8, 'num_stages': 2, 'constants': {'BLOCK_Q': 128, 'BLOCK_K': 32}},
        {'num_warps': 4, 'num_stages': 3, 'form': 'direct', 'constants': {'BLOCK_Q': 64, 'BLOCK_K': 32}},
        {'num_warps': 4, 'num_stages': 3, 'constants': {'BLOCK_Q': 64, 'BLOCK_K': 32}},
        {'num_warps': 4, 'num_stages': 2, 'constants': {'BLOCK_Q': 64, 'BLOCK_K': 64}},
        {'num_warps': 4, 'num_stages': 3, 'constants': {'BLOCK_Q': 64, 'BLOCK_K': 64}},
        {'num_warps': 2, 'num_stages': 3, 'form': 'direct', 'constants': {'BLOCK_Q': 32, 'BLOCK_K': 32}},
        {'num_warps': 4, 'num_stages': 2, 'constants': {'BLOCK_Q': 16, 'BLOCK_K': 16}},
        {'num_warps': 8, 'num_stages': 2, 'constants': {'BLOCK_Q': 32, 'BLOCK_K': 64}},
        {'num_warps': 4, 'num_stages': 2, 'constants': {'BLOCK_Q': 32, 'BLOCK_K': 32}},
    ]
    return _C[key_attend_dq(itemsize, width, length)]


POINTS_attend_dkv = {
    (2, 256, 32): 0,
    (2, 256, 64): 0,
    (2, 256, 128): 0,
    (2, 256, 256): 0,
    (2, 256, 512): 0,
    (2, 256, 1024): 0,
    (2, 256, 2048): 0,
    (2, 256, 4096): 0,
    (2, 256, 8192): 0,
    (2, 256, 16384): 0,
    (2, 128, 32): 1,
    (2, 128, 64): 1,
    (2, 128, 128): 1,
    (2, 128, 256): 1,
    (2, 128, 512): 1,
    (2, 128, 1024): 1,
    (2, 128, 2048): 1,
    (2, 128, 4096): 1,
    (2, 128, 8192): 1,
    (2, 128, 16384): 1,
    (2, 64, 32): 2,
    (2, 64, 64): 2,
    (2, 64, 128): 2,
    (2, 64, 256): 2,
    (2, 64, 512): 2,
    (2, 64, 1024): 1,
    (2, 64, 2048): 1,
    (2, 64, 4096): 1,
    (2, 64, 8192): 1,
    (2, 64, 16384): 1,
    (2, 32, 32): 2,
    (2, 32, 64): 2,
    (2, 32, 128): 2,
    (2, 32, 256): 2,
    (2, 32, 512): 2,
    (2, 32, 1024): 1,
    (2, 32, 2048): 1,
    (2, 32, 4096): 1,
    (2, 32, 8192): 1,
    (2, 32, 16384): 1,
    (2, 16, 32): 3,
    (2, 16, 128): 2,
    (4, 256, 256): 4,
    (4, 128, 256): 4,
    (4, 64, 256): 5,
}


def key_attend_dkv(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
    if itemsize < 4:
        if width < 128:
            if length < 64:
                if width < 32:
                    return 3
                return 2
            if length < 1024:
                return 2
            return 1
        if width < 256:
            return 1
        return 0
    if width < 128:
        return 5
    return 4


def autotune_attend_dkv(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
        {'num_warps': 8, 'num_stages': 2, 'constants': {'BLOCK_Q': 64, 'BLOCK_K': 64}},
        {'num_warps': 4, 'num_stages': 3, 'constants': {'BLOCK_Q': 32, 'BLOCK_K': 64}},
        {'num_warps': 4, 'num_stages': 3, 'form': 'direct', 'constants': {'BLOCK_Q': 32, 'BLOCK_K': 64}},
        {'num_warps': 1, 'num_stages': 3, 'form': 'direct', 'constants': {'BLOCK_Q': 16, 'BLOCK_K': 16}},
        {'num_warps': 4, 'num_stages': 2, 'constants': {'BLOCK_Q': 16, 'BLOCK_K': 16}},
        {'num_warps': 4, 'num_stages': 2, 'constants': {'BLOCK_Q': 32, 'BLOCK_K': 32}},
    ]
    return _C[key_attend_dkv(itemsize, width, length)]


POINTS_attend_biased = {
    (2, 256, 32): 0,
    (2, 256, 64): 0,
    (2, 256, 128): 0,
    (2, 256, 256): 0,
    (2, 256, 512): 0,
    (2, 256, 1024): 0,
    (2, 256, 2048): 0,
    (2, 256, 4096): 0,
    (2, 256, 8192): 0,
    (2, 256, 16384): 0,
    (2, 128, 32): 1,
    (2, 128, 64): 1,
    (2, 128, 128): 1,
    (2, 128, 256): 1,
    (2, 128, 512): 1,
    (2, 128, 1024): 1,
    (2, 128, 2048): 1,
    (2, 128, 4096): 1,
    (2, 128, 8192): 1,
    (2, 128, 16384): 1,
    (2, 64, 32): 1,
    (2, 64, 64): 1,
    (2, 64, 128): 1,
    (2, 64, 256): 1,
    (2, 64, 512): 2,
    (2, 64, 1024): 2,
    (2, 64, 2048): 2,
    (2, 64, 4096): 2,
    (2, 64, 8192): 2,
    (2, 64, 16384): 2,
    (2, 32, 32): 3,
    (2, 32, 64): 3,
    (2, 32, 128): 3,
    (2, 32, 256): 3,
    (2, 32, 512): 2,
    (2, 32, 1024): 2,
    (2, 32, 2048): 2,
    (2, 32, 4096): 2,
    (2, 32, 8192): 2,
    (2, 32, 16384): 2,
    (4, 256, 256): 4,
    (4, 128, 256): 4,
    (4, 64, 256): 5,
}


def key_attend_biased(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
    if itemsize < 4:
        if width < 128:
            if length < 512:
                if width < 64:
                    return 3
                return 1
            return 2
        if width < 256:
            return 1
        return 0
    if width < 128:
        return 5
    return 4


def autotune_attend_biased(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
        {'num_warps': 8, 'num_stages': 2, 'constants': {'BLOCK_Q': 64, 'BLOCK_K': 16}},
        {'num_warps': 4, 'num_stages': 3, 'constants': {'BLOCK_Q': 64, 'BLOCK_K': 16}},
        {'num_warps': 4, 'num_stages': 3, 'constants': {'BLOCK_Q': 64, 'BLOCK_K': 32}},
        {'num_warps': 4, 'num_stages': 2, 'constants': {'BLOCK_Q': 64, 'BLOCK_K': 32}},
        {'num_warps': 4, 'num_stages': 2, 'constants': {'BLOCK_Q': 16, 'BLOCK_K': 16}},
        {'num_warps': 4, 'num_stages': 2, 'constants': {'BLOCK_Q': 32, 'BLOCK_K': 32}},
    ]
    return _C[key_attend_biased(itemsize, width, length)]


POINTS_attend_dq_biased = {
    (2, 256, 32): 0,
    (2, 256, 64): 0,
    (2, 256, 128): 0,
    (2, 256, 256): 0,
    (2, 256, 512): 0,
    (2, 256, 1024): 0,
    (2, 256, 2048): 0,
    (2, 256, 4096): 0,
    (2, 256, 8192): 0,
    (2, 256, 16384): 0,
    (2, 128, 32): 1,
    (2, 128, 64): 1,
    (2, 128, 128): 1,
    (2, 128, 256): 1,
    (2, 128, 512): 1,
    (2, 128, 1024): 1,
    (2, 128, 2048): 1,
    (2, 128, 4096): 1,
    (2, 128, 8192): 1,
    (2, 128, 16384): 1,
    (2, 64, 32): 2,
    (2, 64, 64): 2,
    (2, 64, 128): 2,
    (2, 64, 256): 2,
    (2, 64, 512): 1,
    (2, 64, 1024): 1,
    (2, 64, 2048): 1,
    (2, 64, 4096): 1,
    (2, 64, 8192): 1,
    (2, 64, 16384): 1,
    (2, 32, 32): 2,
    (2, 32, 64): 2,
    (2, 32, 128): 2,
    (2, 32, 256): 2,
    (2, 32, 512): 3,
    (2, 32, 1024): 3,
    (2, 32, 2048): 3,
    (2, 32, 4096): 3,
    (2, 32, 8192): 3,
    (2, 32, 16384): 3,
    (4, 256, 256): 4,
    (4, 128, 256): 4,
    (4, 64, 256): 5,
}


def key_attend_dq_biased(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
    if itemsize < 4:
        if width < 128:
            if length < 512:
                return 2
            if width < 64:
                return 3
            return 1
        if width < 256:
            return 1
        return 0
    if width < 128:
        return 5
    return 4


def autotune_attend_dq_biased(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
        {'num_warps': 8, 'num_stages': 2, 'constants': {'BLOCK_Q': 64, 'BLOCK_K': 16}},
        {'num_warps': 4, 'num_stages': 3, 'constants': {'BLOCK_Q': 64, 'BLOCK_K': 32}},
        {'num_warps': 4, 'num_stages': 3, 'constants': {'BLOCK_Q': 64, 'BLOCK_K': 16}},
        {'num_warps': 4, 'num_stages': 2, 'constants': {'BLOCK_Q': 64, 'BLOCK_K': 32}},
        {'num_warps': 4, 'num_stages': 2, 'constants': {'BLOCK_Q': 16, 'BLOCK_K': 16}},
        {'num_warps': 4, 'num_stages': 2, 'constants': {'BLOCK_Q': 32, 'BLOCK_K': 32}},
    ]
    return _C[key_attend_dq_biased(itemsize, width, length)]


POINTS_attend_dkv_biased = {
    (2, 256, 32): 0,
    (2, 256, 64): 0,
    (2, 256, 128): 0,
    (2, 256, 256): 0,
    (2, 256, 512): 0,
    (2, 256, 1024): 0,
    (2, 256, 2048): 0,
    (2, 256, 4096): 0,
    (2, 256, 8192): 0,
    (2, 256, 16384): 0,
    (2, 128, 32): 1,
    (2, 128, 64): 1,
    (2, 128, 128): 1,
    (2, 128, 256): 1,
    (2, 128, 512): 2,
    (2, 128, 1024): 2,
    (2, 128, 2048): 2,
    (2, 128, 4096): 2,
    (2, 128, 8192): 2,
    (2, 128, 16384): 2,
    (2, 64, 32): 1,
    (2, 64, 64): 1,
    (2, 64, 128): 1,
    (2, 64, 256): 1,
    (2, 64, 512): 1,
    (2, 64, 1024): 1,
    (2, 64, 2048): 1,
    (2, 64, 4096): 1,
    (2, 64, 8192): 1,
    (2, 64, 16384): 1,
    (2, 32, 32): 1,
    (2, 32, 64): 1,
    (2, 32, 128): 1,
    (2, 32, 256): 1,
    (2, 32, 512): 2,
    (2, 32, 1024): 2,
    (2, 32, 2048): 2,
    (2, 32, 4096): 2,
    (2, 32, 8192): 2,
    (2, 32, 16384): 2,
    (4, 256, 256): 3,
    (4, 128, 256): 3,
    (4, 64, 256): 4,
}


def key_attend_dkv_biased(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
    if itemsize < 4:
        if width < 256:
            if length < 512:
                return 1
            if width < 64:
                return 2
            if width < 128:
                return 1
            return 2
        return 0
    if width < 128:
        return 4
    return 3


def autotune_attend_dkv_biased(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
        {'num_warps': 8, 'num_stages': 2, 'constants': {'BLOCK_Q': 16, 'BLOCK_K': 64}},
        {'num_warps': 4, 'num_stages': 3, 'constants': {'BLOCK_Q': 16, 'BLOCK_K': 64}},
        {'num_warps': 4, 'num_stages': 3, 'constants': {'BLOCK_Q': 32, 'BLOCK_K': 64}},
        {'num_warps': 4, 'num_stages': 2, 'constants': {'BLOCK_Q': 16, 'BLOCK_K': 16}},
        {'num_warps': 4, 'num_stages': 2, 'constants': {'BLOCK_Q': 32, 'BLOCK_K': 32}},
    ]
    return _C[key_attend_dkv_biased(itemsize, width, length)]


POINTS_attend_dbias = {
    (2, 256, 32): 0,
    (2, 256, 64): 0,
    (2, 256, 128): 0,
    (2, 256, 256): 0,
    (2, 256, 512): 0,
    (2, 256, 1024): 0,
    (2, 256, 2048): 0,
    (2, 256, 4096): 0,
    (2, 256, 8192): 0,
    (2, 256, 16384): 0,
    (2, 128, 32): 1,
    (2, 128, 64): 1,
    (2, 128, 128): 1,
    (2, 128, 256): 1,
    (2, 128, 512): 2,
    (2, 128, 1024): 2,
    (2, 128, 2048): 2,
    (2, 128, 4096): 2,
    (2, 128, 8192): 2,
    (2, 128, 16384): 2,
    (2, 64, 32): 1,
    (2, 64, 64): 1,
    (2, 64, 128): 1,
    (2, 64, 256): 1,
    (2, 64, 512): 3,
    (2, 64, 1024): 3,
    (2, 64, 2048): 3,
    (2, 64, 4096): 3,
    (2, 64, 8192): 3,
    (2, 64, 16384): 3,
    (2, 32, 32): 1,
    (2, 32, 64): 1,
    (2, 32, 128): 1,
    (2, 32, 256): 1,
    (2, 32, 512): 3,
    (2, 32, 1024): 3,
    (2, 32, 2048): 3,
    (2, 32, 4096): 3,
    (2, 32, 8192): 3,
    (2, 32, 16384): 3,
    (4, 256, 256): 4,
    (4, 128, 256): 1,
    (4, 64, 256): 5,
}


def key_attend_dbias(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
    if itemsize < 4:
        if width < 256:
            if length < 512:
                return 1
            if width < 128:
                return 3
            return 2
        return 0
    if width < 128:
        return 5
    if width < 256:
        return 1
    return 4


def autotune_attend_dbias(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
        {'num_warps': 4, 'num_stages': 1, 'constants': {'BLOCK_Q': 32, 'BLOCK_K': 32}},
        {'num_warps': 4, 'num_stages': 3, 'constants': {'BLOCK_Q': 32, 'BLOCK_K': 32}},
        {'num_warps': 8, 'num_stages': 2, 'constants': {'BLOCK_Q': 64, 'BLOCK_K': 64}},
        {'num_warps': 8, 'num_stages': 3, 'constants': {'BLOCK_Q': 64, 'BLOCK_K': 64}},
        {'num_warps': 4, 'num_stages': 1, 'constants': {'BLOCK_Q': 16, 'BLOCK_K': 16}},
        {'num_warps': 4, 'num_stages': 2, 'constants': {'BLOCK_Q': 32, 'BLOCK_K': 32}},
    ]
    return _C[key_attend_dbias(itemsize, width, length)]


POINTS_attend_short = {
    (2, 64, 128): 0,
    (2, 128, 128): 1,
}


def key_attend_short(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
    if width < 128:
        return 0
    return 1


def autotune_attend_short(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
        {'num_warps': 4, 'num_stages': 3, 'form': 'short', 'constants': {'WIDTH': 64, 'BYTES': 2, 'LONGEST': 512, 'ROWS': 256, 'BLOCK': 64, 'BLOCK_K': 32}},
        {'num_warps': 4, 'num_stages': 2, 'form': 'short', 'constants': {'WIDTH': 128, 'BYTES': 2, 'LONGEST': 256, 'ROWS': 256, 'BLOCK': 64, 'BLOCK_K': 32}},
    ]
    return _C[key_attend_short(itemsize, width, length)]


POINTS_attend_short_backward = {
    (2, 64, 128): 0,
    (2, 128, 128): 1,
}


def key_attend_short_backward(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
    if width < 128:
        return 0
    return 1


def autotune_attend_short_backward(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
        {'num_warps': 4, 'num_stages': 3, 'form': 'short', 'constants': {'WIDTH': 64, 'BYTES': 2, 'LONGEST': 512, 'ROWS': 256, 'BLOCK': 64, 'BLOCK_K': 32, 'BLOCK_Q': 32}},
        {'num_warps': 4, 'num_stages': 3, 'form': 'short', 'constants': {'WIDTH': 128, 'BYTES': 2, 'LONGEST': 256, 'ROWS': 256, 'BLOCK': 64, 'BLOCK_K': 32, 'BLOCK_Q': 32}},
    ]
    return _C[key_attend_short_backward(itemsize, width, length)]


POINTS_attend_short_backward_causal = {
    (2, 64, 128): 0,
    (2, 128, 128): 1,
}


def key_attend_short_backward_causal(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
    if width < 128:
        return 0
    return 1


def autotune_attend_short_backward_causal(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
        {'num_warps': 4, 'num_stages': 3, 'form': 'short', 'constants': {'WIDTH': 64, 'BYTES': 2, 'LONGEST': 512, 'ROWS': 256, 'BLOCK': 64, 'BLOCK_K': 32, 'BLOCK_Q': 32}, 'maxnreg': 128},
        {'num_warps': 4, 'num_stages': 3, 'form': 'short', 'constants': {'WIDTH': 128, 'BYTES': 2, 'LONGEST': 256, 'ROWS': 256, 'BLOCK': 64, 'BLOCK_K': 32, 'BLOCK_Q': 32}},
    ]
    return _C[key_attend_short_backward_causal(itemsize, width, length)]


POINTS_attend_masked = {
    (2, 256, 32): 0,
    (2, 256, 64): 0,
    (2, 256, 128): 0,
    (2, 256, 256): 1,
    (2, 256, 512): 1,
    (2, 256, 1024): 1,
    (2, 256, 2048): 1,
    (2, 256, 4096): 1,
    (2, 256, 8192): 1,
    (2, 256, 16384): 1,
    (2, 128, 32): 2,
    (2, 128, 64): 2,
    (2, 128, 128): 2,
    (2, 128, 256): 2,
    (2, 128, 512): 3,
    (2, 128, 1024): 3,
    (2, 128, 2048): 3,
    (2, 128, 4096): 3,
    (2, 128, 8192): 3,
    (2, 128, 16384): 3,
    (2, 64, 32): 4,
    (2, 64, 64): 4,
    (2, 64, 128): 4,
    (2, 64, 256): 4,
    (2, 64, 512): 4,
    (2, 64, 1024): 5,
    (2, 64, 2048): 5,
    (2, 64, 4096): 5,
    (2, 64, 8192): 5,
    (2, 64, 16384): 5,
    (2, 32, 32): 4,
    (2, 32, 64): 4,
    (2, 32, 128): 4,
    (2, 32, 256): 4,
    (2, 32, 512): 4,
    (2, 32, 1024): 5,
    (2, 32, 2048): 5,
    (2, 32, 4096): 5,
    (2, 32, 8192): 5,
    (2, 32, 16384): 5,
    (4, 256, 256): 6,
    (4, 128, 256): 7,
    (4, 64, 256): 8,
}


def key_attend_masked(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
    if itemsize < 4:
        if width < 128:
            if length < 1024:
                return 4
            return 5
        if width < 256:
            if length < 512:
                return 2
            return 3
        if length < 256:
            return 0
        return 1
    if width < 128:
        return 8
    if width < 256:
        return 7
    return 6


def autotune_attend_masked(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
        {'num_warps': 4, 'num_stages': 2, 'constants': {'BLOCK_Q': 64, 'BLOCK_K': 16}},
        {'num_warps': 8, 'num_stages': 3, 'constants': {'BLOCK_Q': 128, 'BLOCK_K': 32}},
        {'num_warps': 4, 'num_stages': 3, 'form': 'direct', 'constants': {'BLOCK_Q': 64, 'BLOCK_K': 32}, 'maxnreg': 168},
        {'num_warps': 4, 'num_stages': 3, 'constants': {'BLOCK_Q': 64, 'BLOCK_K': 32}, 'maxnreg': 168},
        {'num_warps': 4, 'num_stages': 3, 'form': 'direct', 'constants': {'BLOCK_Q': 64, 'BLOCK_K': 32}},
        {'num_warps': 4, 'num_stages': 3, 'constants': {'BLOCK_Q': 64, 'BLOCK_K': 32}},
        {'num_warps': 4, 'num_stages': 2, 'constants': {'BLOCK_Q': 16, 'BLOCK_K': 16}},
        {'num_warps': 8, 'num_stages': 2, 'constants': {'BLOCK_Q': 32, 'BLOCK_K': 64}},
        {'num_warps': 4, 'num_stages': 2, 'constants': {'BLOCK_Q': 32, 'BLOCK_K': 32}},
    ]
    return _C[key_attend_masked(itemsize, width, length)]
