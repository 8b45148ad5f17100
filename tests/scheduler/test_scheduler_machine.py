"""Random requests, cancellations and steps: every step is checked, and in the end everybody has been served."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from scheduler_drive import Drive

from samebits.cache import PageCache, pages_for_window
from samebits.scheduler import Policy

MAX_LEN, MAX_REQUESTS = 48, 16
STEM = [0, 1, 0, 1, 1, 0, 1, 1, 1, 0, 0, 0, 1, 0, 1, 0, 0, 1, 0, 0, 1, 1, 0, 1, 0, 0]  # prompts share starts of it
POLICIES = st.builds(
    Policy,
    prefill_budget=st.sampled_from(["dynamic", 3, 9, "off"]),
    max_batch_tokens=st.sampled_from([24, 9, 1]),
    min_prefill_tokens=st.sampled_from([4, 1]),
    max_prefill_chunk=st.sampled_from([None, 7, 2]),
    priority_steps=st.sampled_from([1, 4, 1000]),
)


class SchedulerMachine(RuleBasedStateMachine):
    """Tight pools hold hardly more than the longest sequence, so that preemption is common."""

    @initialize(
        page_size=st.sampled_from([1, 4, 16]),
        spare_pages=st.sampled_from([2, 0, 400]),
        window=st.sampled_from([None, None, 1, 3, 17]),
        further=st.sampled_from([(), (), (3,), (1,), (12, 2)]),
        num_snapshots=st.sampled_from([None, 6, 1, 0, 40]),
        max_sequences=st.sampled_from([6, 3, 1]),
        policy=POLICIES,
        shares_prefixes=st.sampled_from([True, True, True, False]),
    )
    def start(
        self,
        page_size: int,
        spare_pages: int,
        window: int | None,
        further: tuple[int, ...],
        num_snapshots: int | None,
        max_sequences: int,
        policy: Policy,
        shares_prefixes: bool,
    ) -> None:
        num_pages = 1 + -(-MAX_LEN // page_size) + spare_pages
        most = policy.max_step_tokens(max_sequences)
        narrower = [
            (w, pages_for_window(w, page_size, max_sequences, most, num_pages))
            for w in further
            if window is None or w < window
        ]
        pages = PageCache(
            num_pages,
            page_size,
            max_sequences,
            MAX_LEN,
            window=window,
            further=narrower,
            num_snapshots=num_snapshots,
        )
        self.drive = Drive(pages, policy, shares_prefixes=shares_prefixes)
        self.num_added = 0

    @precondition(lambda self: self.num_added < MAX_REQUESTS)
    @rule(
        stem=st.sampled_from([20, 0, 5, len(STEM)]),
        tail=st.text("01", min_size=1, max_size=12),
        num_new=st.sampled_from([12, 30, 1, 20]),
        burst=st.sampled_from([1, 4]),
        num_samples=st.sampled_from([1, 1, 1, 2, 4]),
        priority=st.sampled_from([0, 0, 0, 1, -1]),
        salt=st.sampled_from([b"", b"", b"other"]),
        scored=st.sampled_from(["", "", "", "alone", "and drawn"]),
    )
    def add(
        self,
        stem: int,
        tail: str,
        num_new: int,
        burst: int,
        num_samples: int,
        priority: int,
        salt: bytes,
        scored: str,
    ) -> None:
        options = {"priority": priority, "salt": salt, "wants_all": bool(scored), "draws": scored != "alone"}
        for i in range(burst):
            tokens = STEM[:stem] + [i % 2] * i + [int(c) for c in tail]
            self.drive.add(tokens, num_new, num_samples=1 if scored == "alone" else num_samples, **options)
        self.num_added += burst

    @rule(count=st.sampled_from([1, 2, 5]))
    def steps(self, count: int) -> None:
        for _ in range(count):
            self.drive.step()

    @rule(which=st.integers(0, 24))
    def cancel(self, which: int) -> None:
        live = self.drive.live()
        if which < len(live):  # so that there are fewer cancellations than requests
            self.drive.cancel(live[which])

    @rule(happens=st.sampled_from([False, False, True]), ends=st.booleans())
    def fail(self, happens: bool, ends: bool) -> None:
        if happens:
            self.drive.fail_step(ends)

    @rule(happens=st.sampled_from([False, False, True]), ends=st.booleans())
    def start_anew(self, happens: bool, ends: bool) -> None:
        if happens:
            self.drive.start_anew(ends)

    def teardown(self) -> None:
        if hasattr(self, "drive"):
            self.drive.drain()


SchedulerMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=24, derandomize=True, deadline=None, database=None
)
TestSchedulerMachine = SchedulerMachine.TestCase
