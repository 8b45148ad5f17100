"""All planted defects by name, and a table of them: python tests/verify/defects.py [--only NAME] [--klass KLASS]"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

from planted_base import Defect

KLASSES = (
    "rows",
    "sizes",
    "attention",
    "values",
    "formats",
    "runs",
    "graphs",
    "rare",
    "slots",
    "experts",
    "refusals",
    "tiers",
    "attributes",
    "bounds",
)


def _gathered() -> dict[str, type[Defect]]:
    """Every class with a witness in the planted_<klass>*.py of this folder, by class and in the order of lines."""
    found: dict[str, type[Defect]] = {}
    for path in (p for klass in KLASSES for p in sorted(Path(__file__).parent.glob(f"planted_{klass}*.py"))):
        module = import_module(path.stem)
        for name, thing in vars(module).items():
            is_defect = isinstance(thing, type) and issubclass(thing, Defect) and "witness" in vars(thing)
            if is_defect and thing.__module__ == module.__name__:
                if name in found:
                    raise ValueError(f"{name} is a defect in {found[name].__module__} and in {module.__name__}")
                found[name] = thing
    return found


PLANTED: dict[str, type[Defect]] = _gathered()


def backend_name(defect: type[Defect]) -> str:
    """What `--backend` takes, with this folder on PYTHONPATH."""
    return f"{defect.__module__}:{defect.__name__}"


def main() -> None:
    parser = argparse.ArgumentParser(description="List the planted defects.")
    parser.add_argument("--only", choices=PLANTED, metavar="NAME", help="this defect alone")
    parser.add_argument("--klass", choices=KLASSES, help="the defects of this class alone")
    asked = parser.parse_args()
    chosen = [d for n, d in PLANTED.items() if asked.only in (None, n) and asked.klass in (None, d.klass)]
    for defect in chosen:
        ops = ", ".join(defect.ops) if len(defect.ops) <= 3 else f"{len(defect.ops)} ops"
        print(f"{defect.klass:10} {defect.__name__:32} {ops:42} {defect.__doc__}")
    print(f"{len(chosen)} of {len(PLANTED)} defects")


if __name__ == "__main__":
    main()
