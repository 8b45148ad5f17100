// An invocation moves a unit, a word or a block with its scale, of y [pages, B, A, units] from x [pages, A, B, units],
// where pages of a unified cache count twice; of the same order where SWAPS is false.
fn copy_unit(from_unit: u32, into_unit: u32) {
    if (CODE_WORDS == 0u) {
        y[into_unit] = x[from_unit];
        return;
    }
    for (var word = 0u; word < CODE_WORDS; word++) {
        y[into_unit * CODE_WORDS + word] = x[from_unit * CODE_WORDS + word];
    }
    y[P.into_scales + into_unit] = x[P.from_scales + from_unit];
}

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = linear_group(group, groups) * 64u + lane;
    if (i >= P.count) { return; }
    let unit = i % UNITS;
    let row = i / UNITS % (A * B);
    let part = i / UNITS / (A * B) % PARTS;
    let page = i / UNITS / (A * B) / PARTS;
    let other = select(row, row % A * B + row / A, SWAPS);
    let first = part * A * B;
    copy_unit(x_row(page) + (first + other) * UNITS + unit, y_row(page) + (first + row) * UNITS + unit);
}
