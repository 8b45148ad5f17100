//: needs elementary, row_sum, add_to_residual, sigmoid
// LANES invocations take a row; each walks the same places in every pass, so that it reads what it wrote itself.

fn gate_factor(i: u32, left: u32) -> vec4<f32> {
    let g = gate_four(i, left);
    return settle4(vec4(silu(g.x), silu(g.y), silu(g.z), silu(g.w)));
}

// Elements of the row that is normalised.
fn taken(row: u32, c: u32, centre: f32) -> vec4<f32> {
    let inner = (row % INNER) * K + c;
    let left = K - c;
    if (HAS_RESIDUAL) { return residual_four(residual_row(row / INNER) + inner, left); }
    let v = x_four(x_row(row / INNER) + inner, left);
    if (GATE_FIRST) { return settle4(mul4(v, gate_factor(gate_row(row / INNER) + inner, left))); }
    if (CENTRED) { return within(settle4(sub4(v, vec4(centre))), left); }
    return v;
}

fn put(row: u32, c: u32, normalized: vec4<f32>) {
    var v = settle4(normalized);
    let part = (row % PARTS) * K + c;
    if (HAS_WEIGHT) { v = mul4(v, weight_four(weight_row(0u) + part, K - c)); }
    if (HAS_BIAS) { v = add4(v, bias_four(bias_row(0u) + part, K - c)); }
    v = settle4(v);
    let inner = (row % INNER) * K + c;
    if (GATE_LAST) { v = settle4(mul4(v, gate_factor(gate_row(row / INNER) + inner, K - c))); }
    y_put(y_row(row / INNER) + inner, K - c, v);
}

@compute @workgroup_size(LANES * ROWS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = linear_group(group, groups) * ROWS + lane / LANES;
    let width = select(0u, K, row < P.num_rows);
    let first = ((lane % LANES) / 4u) * 256u + (lane % 4u) * 4u;
    var centre = 0.0;
    if (CENTRED) {
        for (var cut = 0u; cut < CUTS; cut += CUTS_AT_ONCE) {
            var slots = vec4(0.0);
            let start = cut * 256u + first;
            for (var c = start; c < min(start + 256u, width); c += 16u) { slots = add4(slots, taken(row, c, 0.0)); }
            keep_cuts(lane, cut, slots);
        }
        centre = mul(settle(row_total(lane)), P.inv_k);
    }
    for (var cut = 0u; cut < CUTS; cut += CUTS_AT_ONCE) {
        var slots = vec4(0.0);
        let start = cut * 256u + first;
        for (var c = start; c < min(start + 256u, width); c += 16u) {
            var v: vec4<f32>;
            if (HAS_RESIDUAL) { v = added(row, c); } else { v = taken(row, c, centre); }
            slots = add4(slots, mul4(v, v));
        }
        keep_cuts(lane, cut, slots);
    }
    let factor = rsqrt(add(mul(settle(row_total(lane)), P.inv_k), P.eps));
    for (var cut = 0u; cut < CUTS; cut += CUTS_AT_ONCE) {
        let start = cut * 256u + first;
        for (var c = start; c < min(start + 256u, width); c += 16u) {
            put(row, c, mul4(taken(row, c, centre), vec4(factor)));
        }
    }
}
