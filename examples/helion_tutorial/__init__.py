"""Helion from zero for people who build recommenders, one file a step:

1. `tiles`: what Helion is, the two halves of a kernel, `hl.tile`
2. `softmax`: a row softmax in one line, and in two passes with the online recurrence
3. `matmul`: a product of matrices, tile by tile
4. `configs`: what a config decides and what a setting does; saving one
5. `triton_code`: reading what Helion generates; what is compiled in and what stays free
6. `tuning`: searching for a config, and choosing among known ones
7. `deployment`: configs for many shapes and GPUs without a search: `helion.aot_kernel`
8. `jagged_tiles`: rows of unequal length: the rules of `hl.jagged_tile`
9. `jagged_refusals`: what it refuses, and what to write instead

    python -m examples.helion_tutorial            # all steps
    python -m examples.helion_tutorial.softmax    # one

It needs `pip install -e '.[gpu]'`, and where torch has no CUDA `pip install triton==3.6.0` as well.

Every step checks its kernels against torch. Without a GPU, Triton's interpreter runs them on the
CPU, program by program: the same generated code, far slower. A search works there too, but which
config it finds means something on a GPU only.
"""

import os

import torch

STEPS = (
    "tiles",
    "softmax",
    "matmul",
    "configs",
    "triton_code",
    "tuning",
    "deployment",
    "jagged_tiles",
    "jagged_refusals",
)

# Triton decides when it is imported whether it compiles or interprets, and Helion imports Triton:
# so this stands before any step's first line.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
