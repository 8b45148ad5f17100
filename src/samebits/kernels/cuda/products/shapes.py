"""How fast.cu, wide.cu and exact.cu cut their work: tiles, groups of warps, stages. Chosen for an H200."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from samebits.core.format import FORMATS
from samebits.kernels.triton.lib.weights import CHUNK, PLANES, TILE

COPIERS = 4  # warps of a block that copy
MOST_SHARED_BYTES = 227 << 10
MOST_TILES = 7  # of 16 rows, that a block owns at a time: more leave no registers
MOST_WIDTH = 16  # tiles of 8 tokens side by side
MANY_TOKENS = 1024  # of so many, padding to whole tiles is a small part
STAGE_ALIGN = 128
WITH_OFFSETS = ("q4_1", "q5_1", "q4_k", "q5_k")  # the sums of the activations' codes are read too


def tile_bytes(format_name: str, num_blocks: int) -> int:
    """Bytes of a tile in a stage of so many blocks: TileStage::bytes of formats.cuh."""
    planes = PLANES[format_name]
    shared = planes.get("d", 0) + planes.get("m", 0)
    groups = -(-num_blocks // CHUNK) if FORMATS[format_name].block_len > 32 else num_blocks
    return TILE * (num_blocks * (sum(planes.values()) - shared) + groups * shared)


def _tiles_bytes(format_name: str, num_tiles: int, num_blocks: int) -> int:
    return -(-num_tiles * tile_bytes(format_name, num_blocks) // STAGE_ALIGN) * STAGE_ALIGN


def _registers(threads: int) -> int:
    """Registers that a thread may have: they lie in four parts, and warps with them."""
    return min(255, 512 // -(-threads // 128) // 8 * 8)


@dataclass(frozen=True)
class _Form:
    """What the forms of all kernels have: their letters are what a source is compiled with."""

    @property
    def threads(self) -> int:
        raise NotImplementedError

    @property
    def defines(self) -> tuple[tuple[str, int], ...]:
        return (*((name.upper(), size) for name, size in asdict(self).items()), ("REGISTERS", _registers(self.threads)))


@dataclass(frozen=True)
class FastShape(_Form):
    """Of fast.cu, whose first lines say what the letters stand for."""

    mt: int
    nt: int
    kg: int
    tg: int
    sb: int
    stages: int

    @property
    def threads(self) -> int:
        return 32 * (self.kg * self.tg + COPIERS)

    def shared_bytes(self, format_name: str) -> int:
        stage = _tiles_bytes(format_name, self.mt, self.sb) + self.sb * self.nt * 512
        return self.stages * stage + self.kg // 2 * self.mt * self.nt * 512


@dataclass(frozen=True)
class WideShape(_Form):
    """Of wide.cu; gated is 0, 1 or 2."""

    nt: int
    rg: int
    kg: int
    parts: int
    sb: int
    stages: int
    gated: int = 0

    @property
    def tiles(self) -> int:
        return 4 * self.rg

    @property
    def _gating_bytes(self) -> int:
        """Gating::bytes of gating.cuh."""
        half, tokens = self.tiles // 2, 8 * self.nt
        return self.tiles * self.nt // 2 * (512 + 32) + tokens * (16 * half + 2 * half)

    @property
    def threads(self) -> int:
        return 32 * (self.tiles * self.kg + COPIERS)

    def shared_bytes(self, format_name: str) -> int:
        stage = _tiles_bytes(format_name, self.tiles, self.sb) + self.sb * self.nt * 512
        meeting = self.kg * self.tiles * self.nt * 512 if self.kg * self.parts > 1 else 0
        return self.stages * stage + meeting + (self._gating_bytes if self.gated == 2 else 0)


@dataclass(frozen=True)
class ExactShape(_Form):
    """Of exact.cu; tail and fused are 0 or 1."""

    rt: int
    nt: int
    g: int
    tg: int
    stages: int
    tail: int = 0
    fused: int = 0

    @property
    def threads(self) -> int:
        return 32 * (self.rt * self.g * self.tg + COPIERS)

    def shared_bytes(self, format_name: str) -> int:
        blocks = CHUNK * self.g
        stage = _tiles_bytes(format_name, self.rt, blocks)
        stage += blocks * self.nt * (256 + 32 * (1 + (format_name in WITH_OFFSETS)))
        return self.stages * stage + (self.rt * self.nt * 2 * self.g * 512 if self.g > 1 else 0)


def tiles_per_block(num_tiles: int, multiprocessors: int, most: int = MOST_TILES) -> int:
    """How many tiles of rows a block owns at a time, so that as few multiprocessors as can be wait for the others."""

    def busy(tiles: int) -> float:
        rounds = -(-num_tiles // (tiles * multiprocessors))
        return num_tiles / (tiles * multiprocessors * rounds)

    return max(range(1, most + 1), key=lambda tiles: (busy(tiles), tiles))


# By tiles of 8 tokens: groups along K and along tokens, blocks of a stage, stages.
FAST = {1: (8, 1, 16, 3), 2: (8, 1, 16, 3), 4: (4, 2, 8, 4), 8: (4, 2, 8, 3), 16: (2, 4, 4, 4)}
# Of wide.cu, by tiles of 8 tokens and groups of rows: blocks of a stage, stages; the first that K is a multiple of and
# that leaves FEWEST_STAGES where a format needs room.
WIDE = {
    (2, 1): ((16, 4), (8, 6)),
    (2, 2): ((8, 4),),
    (4, 1): ((8, 4),),
    (4, 2): ((8, 4),),
    (4, 4): ((8, 3),),
    (8, 1): ((8, 4), (4, 6)),
    (8, 2): ((8, 4), (4, 6)),
    (8, 4): ((8, 3),),
    (16, 1): ((4, 5),),
    (16, 2): ((4, 5),),
}
FEWEST_STAGES = {1: 2, 2: 2, 4: 3}  # by groups of rows


def token_tiles(num_tokens: int) -> int:
    """Tiles of 8 tokens that fast.cu is compiled for."""
    return next(tiles for tiles in FAST if num_tokens <= 8 * tiles)


def fast_shape(nt: int, num_tiles: int, format_name: str, multiprocessors: int) -> FastShape:
    """The form for so many tiles of tokens, and of rows; fewer stages, then shorter ones, where a format needs room."""
    kg, tg, sb, stages = FAST[nt]
    shape = FastShape(tiles_per_block(num_tiles, multiprocessors), nt, kg, tg, sb, stages)
    while shape.shared_bytes(format_name) > MOST_SHARED_BYTES:
        if shape.stages > 2:
            shape = replace(shape, stages=shape.stages - 1)
        elif shape.sb > kg:
            shape = replace(shape, sb=shape.sb // 2, stages=stages)
        else:
            shape = replace(shape, mt=shape.mt - 1, sb=sb, stages=stages)
    return shape


def wide_shape(nt: int, num_tiles: int, num_blocks: int, format_name: str, multiprocessors: int) -> WideShape | None:
    """The form for so many tiles of tokens and of rows, and blocks of K; None where wide.cu does not fit.

    Few rows: a warpgroup's at a time, and two blocks share K where all of them then still run at once. Many: four at
    a time where they take as long as two and two more.
    """
    units = -(-num_tiles // 4)

    def time(rg: int) -> int:
        return rg * -(-units // (rg * multiprocessors))

    for rg in (4, 2, 1) if time(4) <= time(2) else (2, 1):
        for sb, stages in WIDE.get((nt, rg), ()):
            parts = 2 if 2 * units <= multiprocessors and num_blocks % (2 * sb) == 0 else 1
            if (rg == 1) != (parts * units <= multiprocessors):
                continue
            kg = 2 if rg == 1 else 1
            if nt % (kg * parts) or num_blocks % (sb * parts):
                continue
            shape = _with_room(WideShape(nt, rg, kg, parts, sb, stages), format_name)
            if shape is not None:
                return shape
    return None


def _with_room(shape: WideShape, format_name: str) -> WideShape | None:
    """The form, with fewer stages where a format needs room; None where it then has too few."""
    while shape.shared_bytes(format_name) > MOST_SHARED_BYTES:
        if shape.stages == FEWEST_STAGES[shape.rg]:
            return None
        shape = replace(shape, stages=shape.stages - 1)
    return shape


def gated_shape(nt: int, num_tiles: int, num_blocks: int, format_name: str, multiprocessors: int) -> WideShape | None:
    """The form that ends with int8 blocks of a gated layer, num_tiles of both halves; None where rows are few."""
    shape = wide_shape(nt, num_tiles, num_blocks, format_name, multiprocessors)
    if shape is None or shape.kg * shape.parts > 1:
        return None
    has_one_round = -(-num_tiles // shape.tiles) <= multiprocessors
    return _with_room(replace(shape, gated=1 if has_one_round else 2), format_name)


def exact_width(num_tokens: int) -> int:
    """Tiles of 8 tokens that exact.cu takes side by side; half of the most where that saves much padding."""
    if num_tokens > MOST_WIDTH * 8:
        saves = 0 < num_tokens % (MOST_WIDTH * 8) <= MOST_WIDTH * 4
        return MOST_WIDTH // 2 if saves and num_tokens < MANY_TOKENS else MOST_WIDTH
    return next(tiles for tiles in (1, 2, 4, 8, MOST_WIDTH) if num_tokens <= 8 * tiles)


def exact_shape(num_tokens: int, num_tiles: int, num_blocks: int, format_name: str, multiprocessors: int) -> ExactShape:
    """The form for so many tokens and tiles of rows: more warps share K, or the tokens, where a block has few tiles."""
    nt = exact_width(num_tokens)
    if num_tokens > 8 * MOST_WIDTH:  # blocks enough: what counts is how long a warp can go on
        shape = ExactShape(4, nt, 1, 2, 4) if nt == MOST_WIDTH else ExactShape(8, nt, 1, 1, 4)
        return _fitting(shape, format_name, num_blocks)
    tiles = tiles_per_block(num_tiles, multiprocessors, 2 * MOST_TILES if nt == 2 else MOST_TILES)
    some = 1 if tiles >= MOST_TILES else 2  # groups of a block with some tiles
    if nt <= 2:
        few = 2 if tiles == 2 and num_blocks < 256 else 4
        shape = ExactShape(tiles, nt, some if tiles > 3 else few, 1, 5 - nt)
    elif nt == 4:
        shape = ExactShape(tiles, nt, some, 1, 5) if tiles > 3 else ExactShape(tiles, nt, 4, 1, 3)
    elif nt == 8:
        shape = ExactShape(tiles, nt, 1, some if tiles > 3 else 4, 5) if tiles >= 3 else ExactShape(tiles, nt, 2, 2, 4)
    else:
        shape = ExactShape(tiles, nt, 1, 4, 5)
    return _fitting(shape, format_name, num_blocks)


def _fitting(shape: ExactShape, format_name: str, num_blocks: int) -> ExactShape:
    """A form with fewer stages, groups or tiles of rows where a format needs room; with a cut chunk where K has one."""
    while shape.shared_bytes(format_name) > MOST_SHARED_BYTES:
        if shape.stages > 2:
            shape = replace(shape, stages=shape.stages - 1)
        elif shape.g > 1:
            shape = replace(shape, g=shape.g // 2, stages=3)
        else:
            shape = replace(shape, rt=shape.rt - 1, stages=3)
    return replace(shape, tail=int(num_blocks % CHUNK != 0))
