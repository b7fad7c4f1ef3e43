"""Configurations of the token layer norm, see `jagged.tuning.configs`."""

from jagged.tuning.configs import Table

FORWARD: Table = {
    (9, 0): {
        (2, 32, 1): {"settings": {"block_sizes": [64], "num_warps": 2}},
        (2, 128, 1): {"settings": {"block_sizes": [32], "num_warps": 4}},
        (4, 32, 1): {"settings": {"block_sizes": [64], "num_warps": 2}},
        (4, 128, 1): {"settings": {"block_sizes": [8], "num_warps": 4}},
    },
}
BACKWARD: Table = {
    (9, 0): {
        (2, 32, 1): {"constants": {"BLOCK": 32}, "settings": {"num_warps": 4}},
        (2, 128, 1): {"constants": {"BLOCK": 8}, "settings": {"num_warps": 4}},
        (4, 32, 1): {"constants": {"BLOCK": 32}, "settings": {"num_warps": 4}},
        (4, 128, 1): {"constants": {"BLOCK": 8}, "settings": {"num_warps": 1}},
    },
}
