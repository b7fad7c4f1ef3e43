"""Configurations of jagged_bmm's backward, see `jagged.tuning.configs`.

Block sizes: elements.
"""

from jagged.tuning.configs import Table

BOTH: Table = {
    (9, 0): {
        (2, 128, 64): {"settings": {"block_sizes": [64], "num_warps": 4, "num_stages": 1}},
        (2, 128, 4): {"settings": {"block_sizes": [16], "num_warps": 4, "num_stages": 2}},
    },
}
