"""The exported file: what it imports, what it refuses, and the command that writes it."""

import ast
import builtins
import importlib.util
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

from jagged.eager import sum as eager_sum
from jagged.tuning import export, operands, tables
from jagged.tuning._bundle import Bundle, _used
from jagged.tuning.command_line import main
from jagged.tuning.configs import use_tables
from jagged.tuning.operands import Shape, parse_shape

SHAPE = Shape(rows=4, length=6, width=8)
RUN = """
import sys
import torch
import exported

assert not {"helion", "jagged"} & {name.split(".")[0] for name in sys.modules}
tensors = torch.load("tensors.pt")
values, offsets = tensors["values"], tensors["offsets"]
torch.save(exported.forward(values, offsets), "result.pt")

def refusal(*args):
    try:
        exported.forward(*args)
    except ValueError as error:
        return str(error)
    raise AssertionError("not refused")

print(refusal(values.repeat(1, 2), offsets))
print(refusal(values.half(), offsets))
print(refusal(values.to(torch.int32), offsets))
print(refusal(values, offsets.int()))
print(refusal(torch.empty(1).expand(2**28, 8), offsets))
"""


def imported(text: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    return names - set(sys.stdlib_module_names)


def command_line(*arguments: str) -> int:
    return main(["export", *arguments])


def test_runs_alone_and_refuses_what_it_was_not_made_for(tmp_path: Path) -> None:
    text = export.export("sum", "forward", SHAPE, torch.float32)
    assert imported(text) == {"torch", "triton"}
    (tmp_path / "exported.py").write_text(text)
    offsets = torch.tensor([0, 3, 3, 20, 21, 40])
    values = torch.randn(43, 8)
    values[40:] = torch.nan  # the capacity tail
    torch.save({"values": values, "offsets": offsets}, tmp_path / "tensors.pt")
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        cwd=tmp_path,
        env={"TRITON_INTERPRET": "1", "PYTHONPATH": str(tmp_path), "PATH": "", "HOME": "/tmp"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = eager_sum.forward(values.double(), offsets)
    result = torch.load(tmp_path / "result.pt").double()
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)
    wrong = done.stdout.splitlines()
    assert wrong[0] == (
        "this file was generated for 8 features of 4 bytes, got 16 features of 4 bytes: "
        "export one for them"
    )
    assert "got 8 features of 2 bytes" in wrong[1]
    assert "values is torch.int32 [any, 8], not torch.float32 [any, 8]" in wrong[2]
    assert "offsets is torch.int32 [any], not torch.int64 [any]" in wrong[3]
    assert "values is torch.float32 [any, 8] with 64-bit addresses, not torch.float32" in wrong[4]
    assert "was not generated for this call" in wrong[4]


def test_hands_what_helion_does_not_pass_on_to_triton(tmp_path: Path) -> None:
    entries = {(4, 8, 4): {"block_sizes": [2, 8, 16], "maxnreg": 96}}
    tables.write(tmp_path, "_rows", (8, 0), {"reduce_rows": entries})
    use_tables(tmp_path)
    text = export.export("sum", "forward", SHAPE, torch.float32, capability=(8, 0))
    use_tables(None)
    assert "_launcher=partial(launch, maxnreg=96)" in text
    assert "from functools import partial" in text.splitlines()


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("op", operands.OPS)
def test_the_host_code_of_every_op_is_complete(op: str, direction: str) -> None:
    """Each name that it reads is one of Python's, or defined, imported or made in the file."""
    bundle = Bundle(set())
    assert bundle.add(import_module(f"jagged.kernels.{op}"), direction) == direction
    source = "\n".join([*bundle.imports, *bundle.definitions])
    tree = ast.parse(source)
    known = {"Tensor", *dir(builtins), *bundle.objects}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            known.add(node.name)
        elif isinstance(node, ast.arg):
            known.add(node.arg)
        elif isinstance(node, ast.alias):
            known.add(node.asname or node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            known.add(node.id)
    unknown = {name.id for name in _used(tree) if isinstance(name, ast.Name)} - known
    assert not unknown, source
    assert not any(isinstance(node, ast.alias) and "jagged" in node.name for node in ast.walk(tree))


def test_the_header_says_what_the_file_is_for() -> None:
    text = export.export("softmax", "forward", SHAPE, torch.bfloat16, options={"max_length": 5})
    header = ast.get_docstring(ast.parse(text)) or ""
    assert "The forward of softmax as Triton kernels" in header
    assert "torch.bfloat16 values and torch.int64 offsets, rows=4, length=6, width=8" in header
    assert "max_length=5" in header
    assert "block_sizes" in header


def test_holds_each_launch_of_an_op_with_several_kernels() -> None:
    text = export.export("layer_norm", "backward", SHAPE, torch.float32)
    functions = [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    kernels = [name for name in functions if name.startswith("_helion_")]
    assert len(kernels) == len(set(kernels)) >= 2


def test_serves_batches_of_any_number_of_elements(tmp_path: Path) -> None:
    """Attention looks for a short row in another way where few are as long as the longest."""
    sizes = {"rows": 512, "width": 64, "longest": 128}
    shape = Shape(length=100, **sizes)
    text = export.export("hstu_attention", "forward", shape, torch.bfloat16, capability=(9, 0))
    path = tmp_path / "exported_attention.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel = module.attend_short
    launched: list[int] = []
    kernel._variants = {
        key: lambda *_, number=number: launched.append(number)
        for number, key in enumerate(kernel._variants)
    }
    for length in (100, 128, 10, 1):
        call = Shape(length=length, **sizes), torch.bfloat16, torch.int64, "meta", {}
        module.forward(*operands.make("hstu_attention", "forward", *call))
    assert launched == [0, 0, 1, 1]


def test_the_command_writes_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "dense.py"
    shape = "rows=4,length=6,width=16,columns=32"
    options = ["--dtype", "float16", "--offsets", "int32", "--option", "bias=1"]
    assert command_line("dense_bmm", "--shape", shape, *options, "--output", str(path)) == 0
    assert f"{path}: forward of dense_bmm, " in capsys.readouterr().out
    assert "torch.float16 values and torch.int32 offsets" in path.read_text()
    assert imported(path.read_text()) == {"torch", "triton"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sum", "--shape", "rows=4"], "a shape needs rows and length"),
        (["sum", "--shape", "rows=4,length=x"], "length must be a number, got 'x'"),
        (["sum", "--shape", "rows=4,size=3"], "a shape has columns, heads, length"),
        (["sum", "--shape", "rows=0,length=3"], "rows must be at least 1, got 0"),
        (["summ", "--shape", "rows=1,length=3"], "invalid choice: 'summ'"),
        (["sum", "--shape", "rows=1,length=3", "--capability", "sm90"], "such as 9.0, got 'sm90'"),
        (["sum", "--shape", "rows=1,length=3", "--tables", "none"], "must be a folder with tables"),
    ],
)
def test_refuses_on_the_command_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        command_line(*arguments)
    assert message in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_refused_before_code_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(export, "export", lambda *_: pytest.fail("made"))
    shape = ["--shape", "rows=4,length=6,width=8"]
    with pytest.raises(SystemExit, match="2"):
        command_line("sum", *shape, "--output", str(tmp_path))
    assert f"{tmp_path} is a folder" in capsys.readouterr().err


def test_a_file_is_replaced_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that imports it meanwhile has the old one or the new one."""
    path = tmp_path / "deployed" / "sum.py"
    shape = ["--shape", "rows=4,length=6,width=8", "--output", str(path)]
    monkeypatch.setattr(export, "export", lambda *_: "one = 1\n")
    assert command_line("sum", *shape) == 0
    monkeypatch.setattr(export, "export", lambda *_: "\udcff")  # fails while it is written
    with pytest.raises(SystemExit, match="2"):
        command_line("sum", *shape)
    assert [file.read_text() for file in path.parent.iterdir()] == ["one = 1\n"]


def test_takes_the_config_of_the_users_table(tmp_path: Path) -> None:
    entries = {(4, 8, 4): {"block_sizes": [2, 8, 16], "num_warps": 2}}
    tables.write(tmp_path, "_rows", (8, 0), {"reduce_rows": entries})
    shape = ["--shape", "rows=4,length=6,width=8", "--dtype", "float32"]
    for capability, mine in (("8.0", True), ("7.0", False)):
        path = tmp_path / f"{capability}.py"
        given = ["--tables", str(tmp_path), "--capability", capability, "--output", str(path)]
        assert command_line("sum", *shape, *given) == 0
        assert ("'block_sizes': [2, 8, 16]" in path.read_text()) == mine
    use_tables(None)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("bias=1", "options of sum are: none; got bias"),
        ("bias", "--option takes NAME=NUMBER, got 'bias'"),
    ],
)
def test_refuses_options(option: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        command_line("sum", "--shape", "rows=4,length=6", "--option", option)
    assert message in capsys.readouterr().err


def test_a_shape_is_what_was_said() -> None:
    assert parse_shape("rows=3, length=5,width=7,heads=2") == Shape(3, 5, width=7, heads=2)
    assert (Shape(3, 5).most, Shape(3, 5, longest=4).most) == (10, 4)
    assert (Shape(3, 5, width=7).others, Shape(3, 5, width=7, columns=9).others) == (7, 9)


@pytest.mark.parametrize(
    ("op", "direction", "message"),
    [("none", "forward", "op must be one of dense_add"), ("sum", "up", "got 'up'")],
)
def test_operands_refuse_unknown_names(op: str, direction: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        operands.make(op, direction, SHAPE, torch.float32, torch.int64, "meta")


def test_operands_refuse_a_dropout_of_everything() -> None:
    for direction in ("forward", "backward"):
        with pytest.raises(ValueError, match="dropout is in percent, from 0 to 99, got 100"):
            operands.make(
                "norm_mul_dropout",
                direction,
                SHAPE,
                torch.float32,
                torch.int64,
                "meta",
                {"dropout": 100},
            )


def test_refuses_code_that_needs_helion() -> None:
    with pytest.raises(ValueError, match=r"needs helion\.runtime\.get_num_sm when it runs"):
        export._refuse_other_packages("import torch\nx = helion.runtime.get_num_sm(0)\n")
    with pytest.raises(ValueError, match="needs numpy when it runs"):
        export._refuse_other_packages("import numpy\n")
