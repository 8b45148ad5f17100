"""Makes an environment over this one: it sees all that is installed here, and what is installed in it comes first.

python packaging/layer.py .venv-clients

So packages whose requirements clash with our tools' are tried beside the same build, and ours stay as they are.
"""

from __future__ import annotations

import sys
import sysconfig
import venv
from pathlib import Path


def make_layer(folder: Path) -> None:
    """The environment in `folder`, empty and without a pip of its own: this one's serves it."""
    venv.create(folder, clear=True, with_pip=False, symlinks=True)
    inside = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    below = sysconfig.get_path("purelib")
    Path(inside, "below.pth").write_text(f"import site; site.addsitedir({below!r})\n")


if __name__ == "__main__":
    make_layer(Path(sys.argv[1]).absolute())
