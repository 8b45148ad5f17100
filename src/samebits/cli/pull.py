"""`samebits pull`: a model's file into the cache."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from samebits.cli import flags
from samebits.loaders.cache import DEFAULT_MODEL
from samebits.loaders.pull import pull as pull_model


class ShownProgress:
    """A bar on standard error for each step of a pull, as the steps come; nothing where no one is looking."""

    def __init__(self) -> None:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeElapsedColumn(),
        )
        console = Console(stderr=True)
        self._bars = Progress(*columns, console=console, transient=True) if console.is_terminal else None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> ShownProgress:
        if self._bars:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars:
            self._bars.stop()

    def report(self, step: str, num_bytes: int, total: int | None) -> None:
        """What `loaders.pull` calls: bytes so far, and in all where that is known."""
        if self._bars is None:
            return
        if step not in self._tasks:
            self._tasks[step] = self._bars.add_task(step, total=total)
        self._bars.update(self._tasks[step], completed=num_bytes, total=total)


def pull(
    model: str = flags.Argument(DEFAULT_MODEL, help="smollm2, an https address, hf:owner/repo/file, or a local path."),
    sha256: str = flags.Option(None, "--sha256", help="The checksum the file must have."),
) -> None:
    """Fetch a model into the cache and print its path. A download that was interrupted goes on where it stopped."""
    with ShownProgress() as progress:
        path = pull_model(model, progress.report, sha256)
    flags.echo(path)
