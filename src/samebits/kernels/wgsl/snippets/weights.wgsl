//: needs elementary, row_state, scanning
// Weights whose sums say where a ranking is cut: 1 each (top-k), or a mass (top-p).

// rint(exp(x - top) * 2^28)
fn mass_of(x: f32, top: f32) -> u32 {
    if (!is_finite(x)) { return 0u; }
    let w = mul(exp_exact(sub(x, top)), 268435456.0);
    return u32(select(w, sub(add(w, 8388608.0), 8388608.0), w < 8388608.0));
}

// 0 for what an earlier filter dropped.
fn weight_of(x: f32, index: u32, row: Row) -> u32 {
    if (!IS_MASS) { return 1u; }
    if (ranks_before(row.last, vec2(key_of(x), index))) { return 0u; }
    return mass_of(x, row.top);
}
