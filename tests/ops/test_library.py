"""How ops are declared, called and found."""

import importlib
from types import SimpleNamespace

import pytest
import torch

import jagged
from jagged.ops import _library


@pytest.mark.parametrize("package", ["helion", "triton"])
def test_a_missing_package_of_the_kernels(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    monkeypatch.setattr(importlib, "import_module", without)
    runner = _library._runner("kernels", "softmax", "forward")
    with pytest.raises(RuntimeError, match=rf"jagged\.ops\.softmax got a CUDA tensor.*{package}"):
        runner(torch.ones(1))


@pytest.mark.parametrize(
    ("capability", "hip", "found"),
    [
        ((6, 1), None, r"one of 6\.1"),
        ((7, 0), None, r"one of 7\.0"),
        ((9, 4), "6.3", "an AMD GPU"),
    ],
)
def test_a_gpu_that_no_kernel_compiles_for(
    capability: tuple[int, int], hip: str | None, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some GPU")
    monkeypatch.setattr(torch.version, "hip", hip)
    values = SimpleNamespace(device=torch.device("cuda:1"))
    message = rf"jagged\.ops\.softmax got a tensor on cuda:1 \(Some GPU\).* got {found}: move the"
    with pytest.raises(RuntimeError, match=message):
        _library._runner("kernels", "softmax", "forward")(values)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    monkeypatch.setattr(torch.version, "hip", None)
    _library._check_gpu("softmax", torch.device("cuda:1"))


def test_any_other_missing_module_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str) -> None:
        raise ModuleNotFoundError("No module named 'nonsense'", name="nonsense")

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(ModuleNotFoundError, match="nonsense"):
        _library._runner("kernels", "softmax", "forward")(torch.ones(1))


def test_the_direct_way_is_for_plain_tensors(device: torch.device) -> None:
    x = torch.ones(2, device=device)

    class Other(torch.Tensor):
        pass

    assert _library._nobody_watches((x, None, 3, 1.0, True, "text"))
    assert _library._nobody_watches((torch.nn.Parameter(x),))
    assert not _library._nobody_watches((x, x.as_subclass(Other)))
    assert not _library._nobody_watches((x, torch.SymInt(None)))
    with torch._subclasses.fake_tensor.FakeTensorMode():
        assert not _library._nobody_watches((x,))

    def inside(y: torch.Tensor) -> torch.Tensor:
        assert not _library._nobody_watches((x,))
        return y

    torch.func.vmap(inside)(x)


def test_a_function_transform_is_an_error(device: torch.device) -> None:
    """Autograd is entered past `Function.apply`, which says so in words of its own."""
    values = torch.tensor([1.0, 2.0, 3.0], device=device)
    offsets = torch.tensor([0, 2, 3], device=device)
    with pytest.raises(RuntimeError, match=r"jagged\.ops\.sum has no derivative under a"):
        torch.func.grad(lambda x: jagged.ops.sum(x, offsets).sum())(values)


def test_a_tensor_that_left_a_transform(device: torch.device) -> None:
    """Its wrapper is dead, and stands for the tensor inside."""
    offsets = torch.tensor([0, 2, 3], device=device)
    leaf = torch.tensor([1.0, 1.0, 2.0], device=device, requires_grad=True)
    left = []

    def leak(x: torch.Tensor) -> torch.Tensor:
        left.append(x * 2)
        return x.sum()

    torch.func.grad(leak)(torch.tensor([1.0, 2.0, 3.0], device=device))
    out = jagged.ops.jagged_bmm(leaf[:, None], left[0][:, None], offsets)
    (grad,) = torch.autograd.grad(out.sum(), leaf)
    assert out.flatten().tolist() == [6.0, 12.0]
    assert grad.tolist() == [2.0, 4.0, 6.0]


def test_a_tensor_subclass_goes_through_the_dispatcher(device: torch.device) -> None:
    class Other(torch.Tensor):
        pass

    values = torch.tensor([1.0, 2.0, 3.0], device=device).as_subclass(Other)
    out = jagged.ops.sum(values, torch.tensor([0, 2, 3], device=device))
    assert out.tolist() == [3.0, 3.0]
