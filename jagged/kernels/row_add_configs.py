"""Configurations of row_add, see `jagged.tuning.configs`.

Block sizes: elements, features. Measured on an H200; the entries of width 1, and of width 32 with
4 bytes, follow from the others.
"""

from jagged.tuning.configs import Table

FORWARD: Table = {
    (9, 0): {
        (2, 128, 256): {"settings": {"block_sizes": [32, 128], "num_warps": 2}},
        (2, 32, 16): {"settings": {"block_sizes": [128, 32], "num_warps": 2}},
        (2, 32, 4): {"settings": {"block_sizes": [64, 32], "num_warps": 2}},
        (2, 1, 256): {"settings": {"block_sizes": [1024, 1], "num_warps": 4}},
        (4, 128, 256): {"settings": {"block_sizes": [16, 128], "num_warps": 2}},
        (4, 32, 256): {"settings": {"block_sizes": [64, 32], "num_warps": 2}},
        (4, 1, 256): {"settings": {"block_sizes": [512, 1], "num_warps": 4}},
    },
}
