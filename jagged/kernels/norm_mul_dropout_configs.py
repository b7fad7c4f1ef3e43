"""Configurations of the gated norm, see `jagged.tuning.configs`. The width is that of a norm: D, or
V of one head."""

from jagged.tuning.configs import Table

FORWARD: Table = {
    (9, 0): {
        (2, 32, 1): {"settings": {"block_sizes": [64], "num_warps": 4}},
        (2, 128, 1): {"settings": {"block_sizes": [16], "num_warps": 4}},
        (2, 512, 1): {"settings": {"block_sizes": [4], "num_warps": 4}},
        (2, 4096, 1): {"settings": {"block_sizes": [1], "num_warps": 8}},
        (4, 32, 1): {"settings": {"block_sizes": [32], "num_warps": 4}},
        (4, 128, 1): {"settings": {"block_sizes": [8], "num_warps": 4}},
        (4, 512, 1): {"settings": {"block_sizes": [2], "num_warps": 4}},
        (4, 4096, 1): {"settings": {"block_sizes": [1], "num_warps": 8}},
    },
}
BACKWARD: Table = {
    (9, 0): {
        (2, 32, 1): {"constants": {"BLOCK": 32, "PROGRAMS": 1056}, "settings": {"num_warps": 4}},
        (2, 128, 1): {"constants": {"BLOCK": 8, "PROGRAMS": 528}, "settings": {"num_warps": 4}},
        (2, 512, 1): {"constants": {"BLOCK": 2, "PROGRAMS": 1056}, "settings": {"num_warps": 4}},
        (2, 4096, 1): {"constants": {"BLOCK": 1, "PROGRAMS": 528}, "settings": {"num_warps": 16}},
        (4, 32, 1): {"constants": {"BLOCK": 32, "PROGRAMS": 1056}, "settings": {"num_warps": 4}},
        (4, 128, 1): {"constants": {"BLOCK": 8, "PROGRAMS": 528}, "settings": {"num_warps": 4}},
        (4, 512, 1): {"constants": {"BLOCK": 2, "PROGRAMS": 1056}, "settings": {"num_warps": 4}},
        (4, 4096, 1): {"constants": {"BLOCK": 1, "PROGRAMS": 528}, "settings": {"num_warps": 16}},
    },
}
