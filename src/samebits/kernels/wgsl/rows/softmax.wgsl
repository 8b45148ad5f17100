//: needs elementary, row_sum, tanh
// The exact maximum, then the sum in row order of exp(s - maximum), then the results. Scores are computed in every
// pass: they cost less than memory for them. -Inf and NaN are told by bits.
const MINUS_INF = 0xff800000u;
var<workgroup> highest: array<u32, LANES * ROWS>;

// Numbers in the order of unsigned integers, for a maximum without floats.
fn ordered(bits: u32) -> u32 { return select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u); }
fn from_ordered(key: u32) -> u32 { return select(~key, key & 0x7fffffffu, (key & 0x80000000u) != 0u); }

fn is_nan_or_inf(bits: u32) -> bool { return (bits & 0x7fffffffu) > 0x7f800000u || bits == 0x7f800000u; }

// The pattern of a score: -Inf where it is masked.
fn score(row: u32, c: u32) -> u32 {
    let inner = (row % INNER) * K + c;
    let x = x_at(x_row(row / INNER) + inner);
    let scaled = bitcast<u32>(mul(x, P.scale));
    if (is_nan_or_inf(bitcast<u32>(x)) || is_nan_or_inf(scaled)) { refuse(BAD_X); }
    var s = scaled;
    if (HAS_CAP) { s = bitcast<u32>(soft_capped(bitcast<f32>(scaled), P.cap, P.inv_cap)); }
    if (HAS_MASK) {
        let at = select(mask_row(row / INNER) + inner, mask_row(0u) + c, MASK_IS_ROW);
        if (u32(mask_at(at)) == 0u) { s = MINUS_INF; }
    }
    return s;
}

// exp(s - shift); +0 for -Inf.
fn lowered_exp(s: u32, shift: f32) -> f32 {
    let is_low = s == MINUS_INF;
    let p = exp_exact(sub(bitcast<f32>(select(s, 0u, is_low)), shift));
    return select(p, 0.0, is_low);
}

fn sink_of(row: u32) -> u32 {
    if (!HAS_SINKS) { return MINUS_INF; }
    let sink = bitcast<u32>(sinks_at(sinks_row(row / INNER) + row % INNER));
    if (is_nan_or_inf(sink)) { refuse(BAD_SINKS); }
    return sink;
}

// What scores of a row are lowered by: the maximum of them and the sink, 0 where that is -Inf.
fn shift_of(lane: u32, mine: u32) -> f32 {
    highest[lane] = mine;
    workgroupBarrier();
    let first = (lane / LANES) * LANES;
    var key = highest[first];
    for (var j = 1u; j < LANES; j++) { key = max(key, highest[first + j]); }
    let bits = from_ordered(key);
    return bitcast<f32>(select(bits, 0u, bits == MINUS_INF));
}

@compute @workgroup_size(LANES * ROWS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = linear_group(group, groups) * ROWS + lane / LANES;
    let width = select(0u, K, row < P.num_rows);
    var sink = MINUS_INF;
    if (row < P.num_rows) { sink = sink_of(row); }
    var key = ordered(sink);
    for (var c = lane % LANES; c < width; c += LANES) { key = max(key, ordered(score(row, c))); }
    let shift = shift_of(lane, key);
    let first = ((lane % LANES) / 4u) * 256u + (lane % 4u) * 4u;
    for (var cut = 0u; cut < CUTS; cut += CUTS_AT_ONCE) {
        var slots = vec4(0.0);
        let start = cut * 256u + first;
        for (var c = start; c < min(start + 256u, width); c += 16u) {
            for (var j = 0u; j < min(4u, width - c); j++) {
                slots[j] = add(slots[j], lowered_exp(score(row, c + j), shift));
            }
        }
        keep_cuts(lane, cut, slots);
    }
    let total = add(row_total(lane), lowered_exp(sink, shift));
    let is_alive = total > 0.0;
    let factor = select(0.0, recip(select(1.0, total, is_alive)), is_alive);
    let into_y = y_row(row / INNER) + (row % INNER) * K;
    for (var c = lane % LANES; c < width; c += LANES) {
        y[into_y + c] = settle(mul(lowered_exp(score(row, c), shift), factor));
    }
}
