//: needs float16, bfloat16
// An invocation writes a word: two neighbours of a result that has no gaps. What lies after its end stays.
fn narrowed(e: u32) -> u32 {
    let v = x_at(x_row(e / WIDTH) + e % WIDTH);
    if (TO_F16) { return narrow_f16(v); }
    return narrow_bf16(v);
}

@compute @workgroup_size(GROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let e = (linear_group(group, groups) * GROUP + lane) * 2u;
    if (e >= P.count) { return; }
    let at = y_row(0u) + e / 2u;
    if (e + 1u < P.count) {
        y[at] = narrowed(e) | (narrowed(e + 1u) << 16u);
    } else {
        y[at] = narrowed(e) | (y[at] & 0xffff0000u);
    }
}
