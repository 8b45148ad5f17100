//: needs elementary, row_sum, add_to_residual, sigmoid
// LANES invocations take a row; each walks the same places in every pass, so that it reads what it wrote itself, and
// where it has no more than 16 of them (HELD), it keeps what it read.
var<private> held: array<vec4<f32>, 16>;

fn gate_factor(i: u32, left: u32) -> vec4<f32> {
    let g = gate_four(i, left);
    return settle4(vec4(silu(g.x), silu(g.y), silu(g.z), silu(g.w)));
}

// Elements of the row that is normalised, for the first time: a residual takes x then.
fn taken(row: u32, c: u32) -> vec4<f32> {
    if (HAS_RESIDUAL) { return added(row, c); }
    let inner = (row % INNER) * K + c;
    let v = x_four(x_row(row / INNER) + inner, K - c);
    if (!GATE_FIRST) { return v; }
    return settle4(mul4(v, gate_factor(gate_row(row / INNER) + inner, K - c)));
}

// The same later on, at step i.
fn taken_again(row: u32, c: u32, i: u32) -> vec4<f32> {
    if (HELD) { return held[i]; }
    if (HAS_RESIDUAL) { return residual_four(residual_row(row / INNER) + (row % INNER) * K + c, K - c); }
    return taken(row, c);
}

fn centred(v: vec4<f32>, centre: f32, left: u32) -> vec4<f32> {
    if (!CENTRED) { return v; }
    return within(settle4(sub4(v, vec4(centre))), left);
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
            for (var i = 0u; i < STEPS; i++) {
                let c = cut * 256u + first + i * 16u;
                if (c < width) {
                    held[i] = taken(row, c);
                    slots = add4(slots, held[i]);
                }
            }
            keep_cuts(lane, cut, slots);
        }
        centre = mul(settle(row_total(lane)), P.inv_k);
    }
    for (var cut = 0u; cut < CUTS; cut += CUTS_AT_ONCE) {
        var slots = vec4(0.0);
        for (var i = 0u; i < STEPS; i++) {
            let c = cut * 256u + first + i * 16u;
            if (c < width) {
                var v: vec4<f32>;
                if (CENTRED) { v = centred(taken_again(row, c, i), centre, K - c); } else { v = taken(row, c); }
                slots = add4(slots, mul4(v, v));
                held[i] = v;
            }
        }
        keep_cuts(lane, cut, slots);
    }
    let factor = rsqrt(add(mul(settle(row_total(lane)), P.inv_k), P.eps));
    for (var cut = 0u; cut < CUTS; cut += CUTS_AT_ONCE) {
        for (var i = 0u; i < STEPS; i++) {
            let c = cut * 256u + first + i * 16u;
            if (c < width) {
                var v = taken_again(row, c, i);
                if (!HELD) { v = centred(v, centre, K - c); }
                put(row, c, mul4(v, vec4(factor)));
            }
        }
    }
}
