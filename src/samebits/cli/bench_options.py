"""Options that measurements share."""

from __future__ import annotations

from samebits.cli import flags

BACKEND = flags.Option(
    None,
    "--backend",
    envvar="SAMEBITS_BACKEND",
    help="The backend, by name or as module:Class; the native CPU kernels if absent.",
)
NUMERICS = flags.Option(
    None,
    "--numerics",
    envvar="SAMEBITS_NUMERICS",
    help="The tier: fast, invariant or portable; the strongest if absent.",
)
THREADS = flags.Option(
    None,
    "--threads",
    envvar="SAMEBITS_THREADS",
    help="Use at most this many host threads, fewer while that is faster; all processors if absent.",
    min=1,
    max=1024,
)
PLOT_FILE = flags.Option(None, "--plot", help="Write an HTML page with a plot to this file.")
