"""The wheel holds the package and its layers, nothing else, and imports nothing but torch."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli", reason="Python 3.10 has no TOML reader")

ROOT = Path(__file__).parent.parent


def run(code: str, cwd: Path, path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(path)!r})\n{code}"],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources and unpacked into an empty folder."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("jagged", "modules"):
        shutil.copytree(ROOT / name, source / name, symlinks=True)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(folder), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = folder.glob("jagged_layers-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_every_folder_is_a_listed_package() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = {
        ".".join(init.parent.relative_to(ROOT).parts)
        for init in (ROOT / "jagged").rglob("__init__.py")
    } | {"jagged.modules"}
    assert sorted(listed) == sorted(found)
    assert (ROOT / "jagged" / "modules").resolve() == ROOT / "modules"


def test_the_wheel_holds_the_package_alone(unpacked: Path) -> None:
    tops = {path.name for path in unpacked.iterdir() if not path.name.endswith(".dist-info")}
    assert tops == {"jagged"}
    sources = {p.name for p in (ROOT / "modules").glob("*.py")}
    assert {p.name for p in (unpacked / "jagged/modules").glob("*.py")} == sources
    assert (unpacked / "jagged/py.typed").exists()
    tables = {p.relative_to(ROOT / "jagged") for p in (ROOT / "jagged").rglob("_helion_aot_*.py")}
    assert tables
    assert {path for path in tables if not (unpacked / "jagged" / path).exists()} == set()


def test_the_wheel_works(unpacked: Path, tmp_path: Path) -> None:
    code = (
        "import jagged, torch\n"
        f"assert jagged.__file__.startswith({str(unpacked)!r}), jagged.__file__\n"
        "pool = jagged.modules.MeanPooling()\n"
        "x = jagged.JaggedTensor(torch.ones(3, 2), torch.tensor([0, 2, 2, 3]))\n"
        "print(pool(x).tolist())"
    )
    assert run(code, tmp_path, unpacked).strip() == "[[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]"


def test_import_is_quick_and_loads_torch_alone(tmp_path: Path) -> None:
    code = (
        "import time, torch\n"
        "start = time.process_time()\n"  # of this process alone, however busy the machine is
        "import jagged\n"
        "print(time.process_time() - start)\n"
        "heavy = {'helion', 'triton', 'fbgemm_gpu', 'torchrec', 'pyarrow', 'matplotlib'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    assert min(float(run(code, tmp_path, ROOT)) for _ in range(3)) < 0.2
