"""Configurations of HSTU attention, see `jagged.tuning.configs`. Measured on an H200.

The width is that of a head, the larger of D and V. BLOCK_Q and BLOCK_K are the queries and keys
that a program takes at once. Form "direct": rows are short, so a program finds its row in its own
number, without a work list, even where that leaves half of the programs idle. Form "short": the
kernels for batches of short rows, with the limits of what was measured: heads of WIDTH features of
BYTES bytes, rows up to LONGEST, at least ROWS of them. One mean length for all, so that the width
alone decides.
"""

from typing import Any


def _entry(queries: int, keys: int, warps: int, stages: int, form: str = "") -> dict[str, Any]:
    return {
        "form": form,
        "constants": {"BLOCK_Q": queries, "BLOCK_K": keys},
        "settings": {"num_warps": warps, "num_stages": stages},
    }


def _short(
    width: int, longest: int, block: int, keys: int, warps: int, stages: int, **more: int
) -> dict[str, Any]:
    limits = {"WIDTH": width, "BYTES": 2, "LONGEST": longest, "ROWS": 256}
    return {
        "form": "short",
        "constants": {**limits, "BLOCK": block, "BLOCK_K": keys, **more},
        "settings": {"num_warps": warps, "num_stages": stages},
    }


FORWARD = {
    (9, 0): {
        (2, 32, 256): _entry(64, 32, 4, 3, "direct"),
        (2, 64, 256): _entry(64, 32, 4, 3, "direct"),
        (2, 64, 1024): _entry(64, 32, 4, 3),
        (2, 64, 8192): _entry(128, 64, 8, 3),
        (2, 128, 128): _entry(64, 32, 4, 3, "direct"),
        (2, 128, 1024): _entry(64, 32, 4, 3),
        (2, 256, 1024): _entry(64, 32, 8, 2),
        (4, 32, 256): _entry(32, 32, 4, 2),
        (4, 128, 256): _entry(16, 16, 4, 2),
    },
}
DQ = {
    (9, 0): {
        (2, 32, 256): _entry(64, 32, 4, 3),
        (2, 64, 256): _entry(64, 32, 4, 3),
        (2, 64, 1024): _entry(64, 64, 4, 2),
        (2, 128, 128): _entry(64, 32, 4, 3, "direct"),
        (2, 128, 1024): _entry(64, 64, 4, 2),
        (2, 256, 1024): _entry(64, 32, 8, 2),
        (4, 32, 256): _entry(32, 32, 4, 2),
        (4, 128, 256): _entry(16, 16, 4, 2),
    },
}
DKV = {
    (9, 0): {
        (2, 32, 256): _entry(32, 64, 4, 3, "direct"),
        (2, 64, 256): _entry(32, 64, 4, 3, "direct"),
        (2, 64, 1024): _entry(32, 64, 4, 3),
        (2, 128, 1024): _entry(32, 64, 4, 3),
        (2, 256, 1024): _entry(32, 64, 8, 2),
        (4, 32, 256): _entry(32, 32, 4, 2),
        (4, 128, 256): _entry(16, 16, 4, 2),
    },
}
# With a relative bias, which takes registers of its own.
FORWARD_BIASED = {
    (9, 0): {
        (2, 128, 256): _entry(64, 32, 4, 3, "direct"),
        (4, 128, 256): _entry(16, 16, 4, 2, "direct"),
    },
}
DQ_BIASED = {
    (9, 0): {
        (2, 128, 256): _entry(64, 32, 4, 3, "direct"),
        (4, 128, 256): _entry(16, 16, 4, 2, "direct"),
    },
}
DKV_BIASED = {
    (9, 0): {
        (2, 128, 256): _entry(32, 64, 8, 3, "direct"),
        (4, 128, 256): _entry(16, 16, 4, 2, "direct"),
    },
}
DBIAS = {
    (9, 0): {
        (2, 128, 256): _entry(64, 64, 8, 2),
        (4, 128, 256): _entry(32, 32, 4, 2),
    },
}
# Forward of 64 features is not here: the general kernel is faster.
FORWARD_SHORT = {(9, 0): {(2, 128, 128): _short(128, 256, 64, 32, 4, 3)}}
BACKWARD_SHORT = {
    (9, 0): {
        (2, 64, 128): _short(64, 512, 64, 32, 4, 3, BLOCK_Q=32),
        (2, 128, 128): _short(128, 256, 64, 32, 4, 3, BLOCK_Q=32),
    },
}
