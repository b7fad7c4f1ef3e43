"""Programs that use the library: each file has a `main()` and runs on CPU and GPU."""

import argparse


def takes_no_options(documentation: str | None) -> None:
    """For an example that runs as it is: `--help` prints its docstring, the rest is an error."""
    argparse.ArgumentParser(
        description=documentation, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
