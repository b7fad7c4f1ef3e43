"""The layer's benchmark on the CPU."""

import pytest
import torch

from bench import layer
from bench.check import Wrong
from jagged.modules import HSTULayer

SMALL = ["--cpu", "--rows", "3", "--longest", "12", "--embedding", "8", "--heads", "2"]
SMALL += ["--features", "4", "--dtype", "float32"]
CPU = torch.device("cpu")
LENGTHS = torch.tensor([5, 0, 12])


@pytest.mark.parametrize("preset", ["production", "research"])
def test_every_part_has_a_line(
    preset: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer.Stopwatch, "warm", lambda self, seconds=0.5: None)
    assert layer.main([*SMALL, "--preset", preset]) == 0
    printed = capsys.readouterr().out
    for name in ("whole layer", "attention", "projections", "rest", "  gate", "  residual"):
        (found,) = (text for text in printed.splitlines() if text.startswith(name.ljust(22)))
        assert len(found[22:].split()) == 6  # three times, a share in per cent, host
    assert "allowed 1e-03" in printed


def test_the_cpu_has_small_sizes() -> None:
    options = layer.parse(["--cpu"])
    assert (options.rows, options.longest) == (8, 128)
    options = layer.parse(["--cpu", "--rows", "32", "--longest", "2048"])
    assert (options.rows, options.longest) == (32, 2048)


def test_the_parts_in_turn_are_the_layer() -> None:
    """What is timed one by one is what the layer does: no part is left out."""
    options = layer.parse([*SMALL, "--preset", "research"])
    module = layer.layer_of(options).eval()
    x, times = layer.batch(LENGTHS, 12, 8, CPU, torch.float32)
    timestamps = layer._times(module, times)
    parts = layer.parts(module, x, timestamps)
    assert {name for names in layer.GROUPS.values() for name in names} == set(parts)
    with torch.no_grad():
        normed = parts["norm"].run(x.values)
        u, q, k, v = parts["projection"].run(normed)
        gated = parts["gate"].run(parts["attention"].run(q, k, v), u)
        out = parts["residual"].run(x.values, parts["output"].run(gated))
        assert torch.equal(out, module(x, timestamps=timestamps).values)
    parameters = [p for part in parts.values() for p in part.parameters]
    assert {id(p) for p in parameters} == {id(p) for p in module.parameters()}


@pytest.mark.parametrize("preset", ["production", "research"])
@pytest.mark.parametrize("group_norm", [False, True])
def test_the_torch_parts_compute_the_same(preset: str, group_norm: bool) -> None:
    options = layer.parse([*SMALL, "--preset", preset])
    module = layer.layer_of(options, group_norm=group_norm).eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    x, times = layer.batch(LENGTHS, 12, 8, CPU, torch.float32)
    ours = layer.parts(module, x, layer._times(module, times))
    plain = layer.torch_parts(module, ours)
    assert set(plain) == {"norm", "gate"}
    for name, part in plain.items():
        torch.testing.assert_close(part.run(*part.inputs), ours[name].run(*ours[name].inputs))


def test_a_wrong_layer_gets_no_times(monkeypatch: pytest.MonkeyPatch) -> None:
    options = layer.parse(SMALL)
    assert layer.check(options, CPU, torch.float32) < 1e-5
    gate = HSTULayer.gate

    def without_values(self: HSTULayer, *args: torch.Tensor) -> torch.Tensor:
        out = gate(self, *args)
        return out if out.dtype == torch.float64 else out.index_fill(1, torch.tensor([3]), 0)

    monkeypatch.setattr(HSTULayer, "gate", without_values)
    with pytest.raises(Wrong, match="result has"):
        layer.check(options, CPU, torch.float32)
