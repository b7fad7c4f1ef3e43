import torch

import jagged


def test_truth_table() -> None:
    values = torch.tensor([1.0, 2.0, 3.0, 4.0])
    out = jagged.ops.sum(values, torch.tensor([0, 3, 3, 4]))
    assert out.tolist() == [6.0, 0.0, 4.0]
