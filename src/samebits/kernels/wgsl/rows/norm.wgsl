//: needs elementary
// A workgroup takes a row; invocation j holds slot j of every cut of 256.
var<workgroup> slots: array<f32, 16>;
var<workgroup> total: f32;

@compute @workgroup_size(16)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = linear_group(group, groups);
    let is_row = row < P.num_rows;
    let at = min(row, P.num_rows - 1u);
    let from_x = x_row(at / INNER) + (at % INNER) * K;
    let into_y = y_row(at / INNER) + (at % INNER) * K;
    var sum = 0.0;  // lane 0's: of the cuts so far
    for (var cut = 0u; cut < K; cut += 256u) {
        var slot = 0.0;
        for (var c = cut + lane; c < min(cut + 256u, K); c += 16u) {
            let value = x_at(from_x + c);
            slot = add(slot, mul(value, value));
        }
        slots[lane] = slot;
        workgroupBarrier();
        if (lane == 0u) {
            var of_cut = 0.0;
            for (var j = 0u; j < 16u; j++) { of_cut = add(of_cut, slots[j]); }
            sum = add(sum, of_cut);
            total = sum;
        }
        workgroupBarrier();
    }
    let factor = rsqrt(add(mul(settle(total), P.inv_k), P.eps));
    if (!is_row) { return; }
    for (var c = lane; c < K; c += 16u) {
        var value = settle(mul(x_at(from_x + c), factor));
        if (HAS_WEIGHT) { value = mul(value, weight_at(weight_row(c))); }
        if (HAS_BIAS) { value = add(value, bias_at(bias_row(c))); }
        y[into_y + c] = settle(value);
    }
}
