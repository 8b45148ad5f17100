"""Check every variant's bits, then time them. Needs one H200, Triton 3.6, torch 2.11; about two and a half minutes."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ORDERS = ("QA", "QB", "QC ", "QCt", "QD", "PA", "PB", "PC", "PD")
CHECKS = [["gemv_gemm.py"], ["rowsum.py"], *(["attention.py", order] for order in ORDERS)]


def start(script, *args):
    return subprocess.Popen([sys.executable, "-u", HERE / script, *args])


def main():
    # Checks run side by side: nearly all of their time is compilation, which the timed runs then find cached.
    checks = [start(script, "--check", *names) for script, *names in CHECKS]
    failed = [" ".join(names) for names, check in zip(CHECKS, checks, strict=True) if check.wait()]
    if failed:
        print("checks failed:", failed, flush=True)
    for script in ("rowsum.py", "gemv_gemm.py", "attention.py"):
        if not any(name.startswith(script) for name in failed):
            start(script).wait()
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
