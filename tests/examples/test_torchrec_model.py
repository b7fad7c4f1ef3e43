"""A layer of this library between torchrec's embeddings and its `KeyedTensor`."""

from pathlib import Path

import pytest
import torch

from examples import torchrec_model

ROOT = Path(__file__).parents[2]


# Dynamo reads `.grad` of the looked-up values and hides the warning, which a filter makes an error.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # the backend's own
def test_eager_and_compiled_learn_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    eager, compiled = torchrec_model.main(steps=12, backend="aot_eager")
    assert eager[-1] < 0.7 * eager[0]
    torch.testing.assert_close(compiled, eager, rtol=1e-4, atol=1e-5)
    assert capsys.readouterr().out.count("\n") >= 8


def test_the_pooled_features_are_a_keyed_tensor_and_every_parameter_learns() -> None:
    torch.manual_seed(0)
    model = torchrec_model.Model(backend=None)
    batch, genre = torchrec_model.make_batch(16, torch.device("cpu"))
    features = torchrec_model.from_torchrec(model.lookup(batch), max_length=torchrec_model.LONGEST)
    assert isinstance(features, dict)
    user = model.tower(features)
    assert user.keys() == list(torchrec_model.FEATURES)
    assert user.values().shape == (16, 2 * torchrec_model.WIDTH)
    torch.nn.functional.cross_entropy(model(batch), genre).backward()
    assert [name for name, one in model.named_parameters() if one.grad is None] == []


def test_lines() -> None:
    assert len((ROOT / "examples" / "torchrec_model.py").read_text().splitlines()) < 120
