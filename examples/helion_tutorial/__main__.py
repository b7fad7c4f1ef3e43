"""All steps in order: `python -m examples.helion_tutorial`."""

from importlib import import_module

from examples import takes_no_options
from examples.helion_tutorial import STEPS


def main() -> None:
    """Run every step; the first failed check ends it."""
    for number, name in enumerate(STEPS, 1):
        print(f"{number}. {name}")
        import_module(f"examples.helion_tutorial.{name}").main()


if __name__ == "__main__":
    takes_no_options(__doc__)
    main()
