"""Configurations of sum and mean, see `jagged.tuning.configs`."""

from jagged.tuning.configs import Table

FORWARD: Table = {
    (9, 0): {
        (2, 128, 4): {"settings": {"block_sizes": [8, 128, 4], "num_warps": 4}},
        (2, 128, 256): {
            "form": "row",
            "constants": {"BLOCK": 32},
            "settings": {"block_sizes": [128], "num_warps": 1},
        },
    },
}
BACKWARD: Table = {
    (9, 0): {
        (2, 128, 256): {"settings": {"block_sizes": [32, 128], "num_warps": 4}},
    },
}
