"""The arrows between the folders, and the habits that keep the tree readable."""

import ast
import builtins
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import jagged.modules

ROOT = Path(__file__).parent.parent
LIBRARY = sorted((ROOT / "jagged").rglob("*.py")) + sorted((ROOT / "modules").rglob("*.py"))
SOURCES = [
    path
    for folder in ("jagged", "modules", "examples", "tests", "bench")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not path.name.startswith("_helion_aot_")
]

# Where a folder may import from inside the package (itself always).
ARROWS = {
    "ops": {"checks", "attention"},
    "eager": {"_rows"},
    "kernels": {"tuning"},
    "tuning": {"kernels", "ops", "testing", "checks", "layout", "attention"},
    "data": {"layout", "checks", "interop"},
    "interop": {"layout", "ops", "checks", "attention", "_rows"},
    "modules": {"layout", "ops", "checks", "attention"},
}
# Packages that a folder alone may import.
RESERVED = {"helion": {"kernels", "tuning"}, "triton": {"kernels", "tuning"}}
LAZY = {"torchrec", "fbgemm_gpu", "pyarrow", "redis", "scipy"}


def folder_of(path: Path) -> str:
    """`ops` for jagged/ops/sum.py, `modules` for the layers, `` for jagged/layout.py."""
    parts = path.relative_to(ROOT).parts
    if parts[0] == "modules":
        return "modules"
    if parts[:2] == ("jagged", "modules"):
        return "modules"
    return parts[1] if len(parts) > 2 else ""


def imports(path: Path, top_level_only: bool = False) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "jagged":
                yield from (f"jagged.{alias.name}" for alias in node.names)
            else:
                yield node.module


def test_folders_import_along_the_arrows() -> None:
    for path in LIBRARY:
        folder = folder_of(path)
        if folder not in ARROWS:
            continue
        for name in imports(path):
            if name.startswith("jagged."):
                target = name.split(".")[1]
                assert target == folder or target in ARROWS[folder], f"{path} imports {name}"


def test_the_interop_folder_imports_its_peers_inside_functions() -> None:
    for path in LIBRARY:
        for name in imports(path, top_level_only=True):
            assert name.split(".")[0] not in LAZY, f"{path} imports {name} at import time"


def test_helion_stays_in_kernels_and_tuning() -> None:
    for path in LIBRARY:
        for name in imports(path):
            allowed = RESERVED.get(name.split(".")[0])
            assert allowed is None or folder_of(path) in allowed, f"{path} imports {name}"


def test_no_file_is_longer_than_500_lines() -> None:
    assert [str(p) for p in SOURCES if len(p.read_text().splitlines()) > 500] == []


@pytest.mark.parametrize(
    ("pattern", "folders"),
    [
        (r"\.(item|tolist|cpu)\(\)", {"ops", "kernels", "modules"}),
        (r"os\.environ|getenv", {"", "ops", "eager", "kernels", "modules", "data", "interop"}),
        (r"except( Exception| BaseException| ImportError)?:\s*\n?\s*pass", None),
    ],
)
def test_banned_patterns(pattern: str, folders: set[str] | None) -> None:
    for path in LIBRARY:
        if path.name == "testing.py" or (folders is not None and folder_of(path) not in folders):
            continue
        code = re.sub(r"^ *>>>.*", "", path.read_text(), flags=re.MULTILINE)
        found = re.search(pattern, code)
        assert found is None, f"{path}: {found.group() if found else ''}"


def test_eager_reads_offsets_in_one_helper() -> None:
    found = [
        f"{path.name}: {line.strip()}"
        for path in (ROOT / "jagged" / "eager").glob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"\.(item|tolist|cpu)\(\)|\b(int|bool)\(", line)
    ]
    assert found == ["_rows.py: found: list[int] = numbers.tolist()"]


def test_kernels_assign_no_builtin() -> None:
    """Helion takes a name that `builtins` has for one of the host, which a kernel must not assign.

    An interactive session puts `_` there, its last result, and so does every doctest.
    """
    taken = {"_", *dir(builtins)}
    for path in (ROOT / "jagged" / "kernels").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                assert node.id not in taken, f"{path}:{node.lineno} assigns {node.id}"


def test_layers_take_at_most_five_arguments() -> None:
    for name in jagged.modules.__all__:
        layer = getattr(jagged.modules, name)
        if not (inspect.isclass(layer) and issubclass(layer, torch.nn.Module)):
            continue
        arguments = set(inspect.signature(layer).parameters) - {"device", "dtype"}
        assert len(arguments) <= 5, f"{name} takes {sorted(arguments)}"
