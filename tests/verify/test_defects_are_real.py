"""Every planted defect shows in its witness and nowhere in its twin: none is vacuous, and each is right most times."""

from __future__ import annotations

import pytest
from defects import PLANTED
from planted_attributes import CALLS, OF_SHAPES, TIED_TO_SHAPES
from planted_base import Defect, play

from samebits.backends.reference import ReferenceBackend
from samebits.ops import OPS

KLASSES = {
    "rows": 20,
    "sizes": 15,
    "attention": 20,
    "values": 15,
    "formats": 15,
    "runs": 10,
    "graphs": 10,
    "rare": 5,
    "slots": 8,
    "experts": 20,
    "refusals": 5,
    "tiers": 4,
    "attributes": 50,
    "bounds": 20,
}


@pytest.mark.parametrize("defect", PLANTED.values(), ids=PLANTED)
def test_a_defect_shows_in_its_witness_and_not_in_its_twin(defect: type[Defect]) -> None:
    assert play(defect(), defect.witness()) != play(ReferenceBackend(), defect.witness())
    assert play(defect(), defect.twin()) == play(ReferenceBackend(), defect.twin())


@pytest.mark.parametrize("defect", PLANTED.values(), ids=PLANTED)
def test_a_defect_states_its_class_its_ops_and_what_a_kernel_would_have_done(defect: type[Defect]) -> None:
    assert defect.klass in KLASSES
    assert defect.__doc__
    assert "\n" not in defect.__doc__
    assert set(defect.ops) <= {op.name for op in OPS}
    witness = defect.witness()
    scenes = witness if isinstance(witness, list) else [witness]
    assert set(defect.ops) & {node.op.name for scene in scenes for node in scene.graph.nodes}


@pytest.mark.parametrize(("klass", "least"), KLASSES.items())
def test_every_class_has_its_share(klass: str, least: int) -> None:
    assert sum(defect.klass == klass for defect in PLANTED.values()) >= least


def test_every_attribute_has_a_defect_that_ignores_it() -> None:
    ignored = {(op, attr) for _, op, attr, _, _ in CALLS}
    free = {(op.name, attr.name) for op in OPS for attr in op.attrs if attr.name not in OF_SHAPES}
    assert free == ignored | TIED_TO_SHAPES


def test_every_op_has_a_defect_that_touches_few_others() -> None:
    few = {name for defect in PLANTED.values() if len(defect.ops) <= 4 for name in defect.ops}
    assert few == {op.name for op in OPS}
