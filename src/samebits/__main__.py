"""`python -m samebits`: the command line, also from a source tree that is not installed."""

from samebits.cli.main import main

main()
