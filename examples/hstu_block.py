"""One HSTU layer on rows of different lengths, with candidates to score at the end of each row.

    python -m examples.hstu_block

Shows what the attention sees, that rows do not touch each other, and that the candidates of a row
do not see one another: scoring them together gives what scoring them one by one gives.
"""

import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a file: make the repository importable
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from examples import takes_no_options
from jagged import JaggedTensor
from jagged.modules import HSTUConfig, HSTULayer

WIDTH = 32


def main() -> float:
    """Run one production layer; returns the largest difference between the two ways to score."""
    torch.manual_seed(0)
    config = HSTUConfig.production(
        embedding_dim=WIDTH, num_heads=2, attention_dim=16, hidden_dim=16, max_length=64, window=4
    )
    layer = HSTULayer(config).eval()
    print(layer)
    print("\na row of 5 events and 2 candidates, 1 where a line's element sees a column's:")
    print(config.mask().picture(7, targets=2))

    histories = [torch.randn(5, WIDTH), torch.randn(0, WIDTH), torch.randn(9, WIDTH)]
    candidates = torch.randn(3, 2, WIDTH)
    together = JaggedTensor.from_rows(
        [torch.cat([row, pair]) for row, pair in zip(histories, candidates, strict=True)]
    )
    with torch.no_grad():
        out = layer(together, num_targets=torch.tensor([2, 2, 2]))
        print(f"\nout: {out.values.shape[0]} elements of {out.values.shape[1]} features")
        # The second candidate of each user on its own: same events before it, nothing beside it.
        alone = JaggedTensor.from_rows(
            [torch.cat([row, pair[1:]]) for row, pair in zip(histories, candidates, strict=True)]
        )
        single = layer(alone, num_targets=torch.tensor([1, 1, 1]))
    last = out.values[out.offsets[1:] - 1]
    difference = float((last - single.values[single.offsets[1:] - 1]).abs().max())
    print(f"second candidates, scored together or alone: they differ by {difference:.1e}")

    # Gradients flow to the events and to the layer.
    values = together.values.clone().requires_grad_()
    layer.train()
    layer(together.with_values(values)).values.square().mean().backward()
    assert values.grad is not None
    print(f"gradient of the events: norm {values.grad.norm():.4f}")
    return difference


if __name__ == "__main__":
    takes_no_options(__doc__)
    main()
