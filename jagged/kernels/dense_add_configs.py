"""Configurations of dense_add, see `jagged.tuning.configs`. Block sizes: elements, features."""

from jagged.tuning.configs import Table

FORWARD: Table = {
    (9, 0): {
        (2, 128, 256): {"settings": {"block_sizes": [64, 128], "num_warps": 4}},
        (2, 32, 256): {"settings": {"block_sizes": [256, 32], "num_warps": 4}},
        (2, 1, 256): {"settings": {"block_sizes": [1024, 1], "num_warps": 4}},
        (4, 128, 256): {"settings": {"block_sizes": [32, 128], "num_warps": 4}},
        (4, 32, 256): {"settings": {"block_sizes": [128, 32], "num_warps": 4}},
        (4, 1, 256): {"settings": {"block_sizes": [1024, 1], "num_warps": 4}},
    },
}
