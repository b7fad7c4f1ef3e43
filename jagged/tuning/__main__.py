"""`python -m jagged.tuning`: see `jagged.tuning.command_line`."""

import sys

try:
    from jagged.tuning.command_line import main
except ModuleNotFoundError as missing:
    package = (missing.name or "").partition(".")[0]
    if package not in ("helion", "triton"):
        raise
    sys.exit(
        f"python -m jagged.tuning needs the package {package}, which is not installed: "
        "pip install 'jagged-layers[gpu]'"
    )

if __name__ == "__main__":
    sys.exit(main())
