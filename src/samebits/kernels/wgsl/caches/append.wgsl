//: needs appending, float16, bfloat16
// An invocation stores a word of a cache in a plain format: one float32, or two numbers of 16 bits.
const PER_WORD = select(2u, 1u, IS_F32);
const WORDS = D / PER_WORD;

fn half_of(x: f32) -> u32 {
    let half = select(narrow_bf16(x), narrow_f16(x), IS_F16);
    // the largest operand of a product: 65504, or 2^63 as bfloat16
    if ((half & 0x7fffu) > select(0x5f00u, 0x7bffu, IS_F16)) { refuse(NOT_STORABLE); }
    return half;
}

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = linear_group(group, groups) * 64u + lane;
    if (i >= P.count) { return; }
    let row = i / WORDS;
    let word = i % WORDS;
    let token = row / HEADS;
    let head = row % HEADS;
    let cell = cell_of(token);
    if (cell == NO_PAGE) { return; }
    let angles = angles_of(token);
    let start = x_row(token) + head * D;
    let into = cell + head * CACHE_HEAD + word;
    let first = turned(start, word * PER_WORD, angles);
    if (IS_F32) {
        if (!is_finite(first)) { refuse(NOT_STORABLE); }
        cache[into] = bitcast<u32>(first);
    } else {
        cache[into] = half_of(first) | (half_of(turned(start, word * PER_WORD + 1u, angles)) << 16u);
    }
}
