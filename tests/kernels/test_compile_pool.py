"""Builds made in other processes: each once, apart from each other, and none that is there already."""

from __future__ import annotations

import os
import pickle
import threading
from pathlib import Path

import pytest
from pool_builds import FileBuild

from samebits.kernels.ahead import is_noting, note, noting
from samebits.kernels.compile_pool import CompilePool


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> CompilePool:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    return CompilePool(["pool_builds"], num_jobs=2)


def test_builds_are_made_in_processes_of_their_own(pool: CompilePool, tmp_path: Path) -> None:
    builds = [FileBuild(name, tmp_path) for name in "abc"]
    told: list[tuple[int, int, float]] = []
    pool.submit(builds)
    pool.submit(builds)  # again: nothing new
    pool.wait(progress=lambda *so_far: told.append(so_far))
    makers = {(tmp_path / name).read_text() for name in "abc"}
    assert len(makers) == 3
    assert str(os.getpid()) not in makers
    assert [(made.build.name, made.error) for made in pool.outcomes()] == [("a", ""), ("b", ""), ("c", "")]
    assert pool.is_made("abc")
    assert {total for _, total, _ in told} == {3}
    assert pool._process is None, "it has nothing more to do"


def test_a_build_that_fails_or_dies_takes_no_other_with_it(pool: CompilePool, tmp_path: Path) -> None:
    pool.submit([FileBuild(name, tmp_path) for name in ("refused", "dying", "a")])
    pool.wait()
    errors = {made.build.name: made.error for made in pool.outcomes()}
    assert errors == {"refused": "ValueError: and the last line", "dying": "the compiler died, with status -9", "a": ""}


def test_what_is_there_is_not_made_again_and_starts_nothing(pool: CompilePool, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("there")
    pool.submit([FileBuild("a", tmp_path)])
    assert pool._process is None
    assert pool.outcomes() == []
    assert pool.is_made(["a"])
    pool.wait()


def test_a_second_round_starts_another_process(pool: CompilePool, tmp_path: Path) -> None:
    for name in "ab":
        pool.submit([FileBuild(name, tmp_path)])
        pool.wait([name])
        assert (tmp_path / name).exists()


def test_a_process_released_during_submit_loses_no_build(
    pool: CompilePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread ends the idle process as soon as `submit` has asked for it."""
    start = pool.start

    def start_and_be_interrupted() -> None:
        start()
        other = threading.Thread(target=pool.wait, args=([],), daemon=True)  # ends a process that has nothing to make
        other.start()
        other.join(0.1)  # the lock may keep it waiting

    monkeypatch.setattr(pool, "start", start_and_be_interrupted)
    pool.submit([FileBuild("a", tmp_path)])
    assert pool._process is not None or pool.is_made(["a"]), "nobody makes it"
    pool.wait(["a"])
    assert (tmp_path / "a").exists()


def test_builds_submitted_by_two_threads_are_made_once(pool: CompilePool, tmp_path: Path) -> None:
    """The second thread looks for what is missing before the first one has queued it."""
    looking = threading.Barrier(2)

    class SlowBuilds(list[FileBuild]):
        def __iter__(self):  # type: ignore[no-untyped-def]
            yield from super().__iter__()
            looking.wait()

    with pool._has_changed:  # both have looked before either queues
        threads = [
            threading.Thread(target=pool.submit, args=(SlowBuilds([FileBuild("a", tmp_path)]),)) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join()
    assert pool._waiting + list(pool._sent.values()) in ([], ["a"])
    pool.wait()
    assert [made.build.name for made in pool.outcomes()] == ["a"]


def test_a_build_that_cannot_be_sent_keeps_nobody_waiting(pool: CompilePool, tmp_path: Path) -> None:
    class LocalBuild(FileBuild):  # cannot be pickled
        pass

    pool.submit([LocalBuild("a", tmp_path), FileBuild("b", tmp_path)])
    pool.wait()
    errors = [made.error for made in pool.outcomes()]
    assert "LocalBuild" in errors[0]
    assert errors[1] == ""


def test_an_answer_that_cannot_be_read_keeps_nobody_waiting(
    pool: CompilePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_take_outcomes", lambda _: pickle.loads(b"no pickle"))
    pool.submit([FileBuild("a", tmp_path)])
    pool.wait()
    assert "builds could not be exchanged" in pool.failure


def test_a_process_that_cannot_start_is_told_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    pool = CompilePool(["no_such_module_anywhere"])
    pool.submit([FileBuild("a", tmp_path)])
    pool.wait()
    assert "No module named 'no_such_module_anywhere'" in pool.failure
    assert pool.is_made(["a"]), "a launch compiles it then"


def test_notes_are_of_one_thread_and_each_build_once(tmp_path: Path) -> None:
    with noting() as notes:
        assert is_noting()
        note(FileBuild("a", tmp_path))
        note(FileBuild("a", tmp_path))
    assert list(notes) == ["a"]
    assert not is_noting()
    with pytest.raises(RuntimeError, match="nothing asked for notes"):
        note(FileBuild("a", tmp_path))
