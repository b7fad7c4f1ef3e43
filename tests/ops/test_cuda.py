"""What only a GPU has: graphs over buffers of fixed capacity, streams, several devices."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import jagged
from tests.ops.battery import JAGGED_CASES, Arguments, Make, OpCase, gradients, outgoing

CAPACITY = 24
BATCHES = [[3, 0, 9, 2], [0, 11, 1, 8]]
CASES = [case for case in JAGGED_CASES if case.label in ("", "concat", "affine", "bias_cut")]

Results = tuple[Tensor, ...]
Problem = tuple[Callable[[Arguments], Results], list[Arguments]]


@pytest.fixture(autouse=True)
def only_on_a_gpu(device: torch.device) -> None:
    if device.type != "cuda":
        pytest.skip("needs a GPU")


def problem(case: OpCase, device: torch.device) -> Problem:
    """Forward and backward of an op as one function, and arguments for it with equal shapes."""
    makes = [
        Make(lengths, device, torch.float32, tail=CAPACITY - sum(lengths), seed=seed)
        for seed, lengths in enumerate(BATCHES)
    ]
    batches = [case.make(make) for make in makes]
    for arguments, make in zip(batches, makes, strict=True):
        arguments["grad"] = outgoing(case, case.call(arguments), make)

    def call(arguments: Arguments) -> Results:
        given = {name: value for name, value in arguments.items() if name != "grad"}
        out, found = gradients(case, given, arguments["grad"], case.operands)
        return out, *found.values()

    return call, batches


def attention(device: torch.device) -> Problem:
    def call(arguments: Arguments) -> Results:
        leaves = [arguments[name].detach().requires_grad_() for name in ("q", "k", "v")]
        out = jagged.ops.hstu_attention(
            *leaves, arguments["offsets"], max_length=CAPACITY, scale=0.1
        )
        return out.detach(), *torch.autograd.grad(out, leaves, arguments["grad"])

    batches: list[Arguments] = []
    for seed, lengths in enumerate(BATCHES):
        make = Make(lengths, device, torch.bfloat16, tail=CAPACITY - sum(lengths), seed=seed)
        drawn = {name: make.jagged(2, 16) for name in ("q", "k", "v", "grad")}
        batches.append({**drawn, "offsets": make.offsets()})
    return call, batches


PROBLEMS = [
    *(
        pytest.param(lambda device, case=case: problem(case, device), id=str(case))
        for case in CASES
    ),
    pytest.param(attention, id="hstu_attention"),
]


@pytest.mark.parametrize("make_problem", PROBLEMS)
def test_a_graph_replays_with_new_rows(
    make_problem: Callable[[torch.device], Problem], device: torch.device
) -> None:
    call, batches = make_problem(device)
    expected = [call(arguments) for arguments in batches]
    buffers = {
        name: value.clone() if isinstance(value, Tensor) else value
        for name, value in batches[0].items()
    }
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = call(buffers)
    for arguments, wanted in zip([*batches, batches[0]], [*expected, expected[0]], strict=True):
        for name, value in arguments.items():
            if isinstance(value, Tensor):
                buffers[name].copy_(value)
        graph.replay()
        for result, want in zip(results, wanted, strict=True):
            torch.testing.assert_close(result, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("make_problem", PROBLEMS)
def test_two_streams(make_problem: Callable[[torch.device], Problem], device: torch.device) -> None:
    call, batches = make_problem(device)
    expected = [call(arguments) for arguments in batches]
    torch.cuda.synchronize()
    found: list[list[Results]] = [[], []]
    streams = [torch.cuda.Stream(device) for _ in batches]
    for _ in range(3):
        for stream, arguments, results in zip(streams, batches, found, strict=True):
            with torch.cuda.stream(stream):
                results.append(call(arguments))
    torch.cuda.synchronize()
    for runs, wanted in zip(found, expected, strict=True):
        for results in runs:
            for result, want in zip(results, wanted, strict=True):
                torch.testing.assert_close(result, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("make_problem", PROBLEMS)
def test_the_device_of_the_tensors_counts(
    make_problem: Callable[[torch.device], Problem],
) -> None:
    """Not the current device, which stays what it is."""
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    here, there = (make_problem(torch.device("cuda", index)) for index in (0, 1))
    with torch.cuda.device(0):
        for arguments, others in zip(here[1], there[1], strict=True):
            wanted, results = here[0](arguments), there[0](others)
            assert torch.cuda.current_device() == 0
            for result, want in zip(results, wanted, strict=True):
                assert result.device.index == 1
                torch.testing.assert_close(result.cpu(), want.cpu(), rtol=0, atol=0, equal_nan=True)
