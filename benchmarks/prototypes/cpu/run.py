"""Build the CPU prototypes, check every kernel against its scalar order, time them and print Markdown tables."""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
TOPICS = ["gemv_gemm", "attention", "attention_prefill", "rowsum"]
# gcc 12 warns about its own intrinsics' deliberately undefined operands.
FLAGS = [
    "-std=c++20",
    "-O3",
    "-march=native",
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
    "-Wno-uninitialized",
    "-Wno-maybe-uninitialized",
]


def measure(topic: str, build_dir: Path) -> list[dict]:
    program = build_dir / topic
    subprocess.run(["g++", *FLAGS, str(HERE / f"{topic}.cpp"), "-o", str(program)], check=True)
    done = subprocess.run([str(program)], check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def format_us(us: float) -> str:
    return f"{us:.0f}" if us >= 100 else f"{us:.1f}" if us >= 1 else f"{us:.3f}"


def cells(record: dict) -> dict[str, str]:
    """Column name to cell text."""
    if "errors" in record:
        return {name: f"{error:.2e}" for name, error in record["errors"].items()}
    return {
        r["name"]: f"{format_us(r['us'])} ({r['ratio']:.2f}; {r['low']:.2f}..{r['high']:.2f})"
        for r in record["results"]
    }


def print_tables(records: list[dict]) -> None:
    for title in dict.fromkeys(r["table"] for r in records if "table" in r):
        rows = [r for r in records if r.get("table") == title]
        names = list(cells(rows[0]))
        print(f"\n**{title}**\n")
        print("| | " + " | ".join(names) + " |")
        print("|---" * (len(names) + 1) + "|")
        for row in rows:
            print(f"| {row['case']} | " + " | ".join(cells(row)[name] for name in names) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topics", nargs="*", default=TOPICS, help=f"any of {', '.join(TOPICS)}; all by default")
    parser.add_argument("--json", action="store_true", help="print the raw records, one a line")
    args = parser.parse_args()
    if unknown := set(args.topics) - set(TOPICS):
        parser.error(f"unknown topic {', '.join(sorted(unknown))}: choose from {', '.join(TOPICS)}")
    with tempfile.TemporaryDirectory() as build_dir:
        records = [record for topic in args.topics for record in measure(topic, Path(build_dir))]
    if args.json:
        print("\n".join(map(json.dumps, records)))
        return
    checked = sum(r.get("checked", 0) for r in records)
    print(f"{checked:,} outputs checked, 0 differ.")
    print("Cells: median µs (median ratio to the fastest; min..max of it over the rounds).")
    print_tables(records)


if __name__ == "__main__":
    main()
