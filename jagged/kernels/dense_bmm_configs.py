"""Configurations of dense_bmm's backward, see `jagged.tuning.configs`.

Block sizes: elements.
"""

from jagged.tuning.configs import Table

BOTH: Table = {
    (9, 0): {
        (2, 128, 128): {"settings": {"block_sizes": [32], "num_warps": 4, "num_stages": 3}},
        (2, 128, 4): {"settings": {"block_sizes": [16], "num_warps": 4, "num_stages": 2}},
    },
}
