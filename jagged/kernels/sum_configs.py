"""Configurations of the sum, see `jagged.tuning.configs`. Written from measurements on an H200."""

FORWARD = {
    (9, 0): {
        (2, 128, 4): {"settings": {"block_sizes": [8, 128, 4], "num_warps": 4}},
        (2, 128, 256): {"settings": {"block_sizes": [1, 128, 32], "num_warps": 1}},
    },
}
BACKWARD = {
    (9, 0): {
        (2, 128, 256): {"settings": {"block_sizes": [32, 128], "num_warps": 4}},
    },
}
