"""Runs the kernel tests that must not share a process with anything else.

Triton decides at import whether it interprets or compiles. So `interpreted/` runs under
TRITON_INTERPRET=1 in one process, `compiled/` (with a pretended H200) in another; a failure here
shows that process's own report, with every case by name. One file by hand:

    JAGGED_KERNEL_TESTS=interpreted TRITON_INTERPRET=1 pytest tests/kernels/interpreted -k softmax
    JAGGED_KERNEL_TESTS=compiled pytest tests/kernels/compiled -k softmax
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
# Files that take minutes are cut in shares, so that all cores have work to the end.
SHARES = {"test_cases.py": 6, "test_cubins.py": 6}
RUNS = [
    pytest.param(path, f"{share}/{shares}", id=f"{path.parent.name}-{path.stem}-{share}")
    for name in ("interpreted", "compiled")
    for path in sorted(HERE.glob(f"{name}/test_*.py"))
    for shares in [SHARES.get(path.name, 1)]
    for share in range(shares)
]


@pytest.mark.parametrize(("path", "share"), RUNS)
def test_in_a_process_of_its_own(path: Path, share: str) -> None:
    folder = path.parent.name
    environment = {
        **os.environ,
        "JAGGED_KERNEL_TESTS": folder,
        "JAGGED_KERNEL_SHARE": share,
        "CUDA_VISIBLE_DEVICES": "",
    }
    environment["TRITON_INTERPRET"] = "1" if folder == "interpreted" else "0"
    environment.pop("PYTEST_XDIST_WORKER", None)  # plugins take the process for a worker
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.fail(f"{path}:\n{done.stdout}\n{done.stderr}", pytrace=False)
