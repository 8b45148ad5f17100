//: needs rounding4
// Sums in row order: a cut is 256 elements; slot j of 16 holds elements j, j + 16, ... of it. Four invocations take a
// cut, each four slots; LANES of them take a row, ROWS rows a workgroup. CUTS is how many a row has.
var<workgroup> row_slots: array<vec4<f32>, LANES * ROWS>;
var<workgroup> row_cuts: array<f32, CUTS * ROWS>;

const CUTS_AT_ONCE = LANES / 4u;

// Adds up the slots of CUTS_AT_ONCE cuts from `first_cut` on. All invocations call it; `slots` is theirs.
fn keep_cuts(lane: u32, first_cut: u32, slots: vec4<f32>) {
    row_slots[lane] = slots;
    workgroupBarrier();
    let cut = first_cut + (lane % LANES) / 4u;
    if ((lane & 3u) == 0u && cut < CUTS) {
        var sum = 0.0;
        for (var q = 0u; q < 4u; q++) {
            let s = row_slots[lane + q];
            sum = add(add(add(add(sum, s.x), s.y), s.z), s.w);
        }
        row_cuts[(lane / LANES) * CUTS + cut] = sum;
    }
    workgroupBarrier();
}

// The sum of this invocation's row, once all its cuts are kept.
fn row_total(lane: u32) -> f32 {
    let first = (lane / LANES) * CUTS;
    var sum = 0.0;
    for (var cut = 0u; cut < CUTS; cut++) { sum = add(sum, row_cuts[first + cut]); }
    return sum;
}
