"""Which tests carry the marker `slow`: those that tests/slow.txt names, from the times of a run of `make test`.

    python tests/slow.py build/tests.xml            prints the slowest tests, as CONTRIBUTING.md has them
    python tests/slow.py build/tests.xml --write    writes tests/slow.txt as well

A name is that of a function and stands for all its cases, whose times are added up.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).parent
LIST = HERE / "slow.txt"
SLOW_SECONDS = 0.7  # of all cases of a function, in a run of several processes
FOLDERS = frozenset(("native", "scale", "webgpu"))  # slow as a whole: emulated CPUs, clusters, shaders to compile
FILES = ("server/test_server_schema.py", "server/test_server_page.py")  # slow as a whole: nearly all of their tests are
NUM_SHOWN = 12


def slow_names() -> frozenset[str]:
    """Return the functions that carry the marker, as `folder/file.py::function`."""
    return frozenset(LIST.read_text().split())


def seconds_by_function(report: Path) -> Counter[str]:
    """Return the seconds of each test function in a JUnit report, set-up and all cases included."""
    found: Counter[str] = Counter()
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        parts = case.attrib["classname"].removeprefix("tests.").split(".")
        file = next((i for i, part in enumerate(parts) if part.startswith("test_")), len(parts) - 1)
        path, inner = "/".join(parts[: file + 1]) + ".py", parts[file + 1 :]
        name = "::".join([path, *inner, case.attrib["name"].partition("[")[0]])
        found[name] += float(case.attrib["time"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="List the slowest tests of a run.")
    parser.add_argument("report", type=Path, help="JUnit XML, which `make test` leaves in build/tests.xml")
    parser.add_argument("--write", action="store_true", help="write tests/slow.txt")
    given = parser.parse_args()
    seconds = seconds_by_function(given.report)
    if given.write:
        slow = sorted(name for name, spent in seconds.items() if spent >= SLOW_SECONDS or name.startswith(FILES))
        LIST.write_text("".join(f"{name}\n" for name in slow))
    print("| seconds | test |\n|---|---|")
    for name, spent in seconds.most_common(NUM_SHOWN):
        print(f"| {spent:.0f} | `tests/{name}` |")


if __name__ == "__main__":
    main()
