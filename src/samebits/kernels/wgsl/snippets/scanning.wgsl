//: needs ranking
// Elements of rows of x, times 1 / temperature; -Inf and +Inf stay as they are.
fn row_start(row: u32) -> u32 { return x_row(row / P.inner) + (row % P.inner) * P.length; }

fn scaled(x: f32, factor: f32) -> f32 { return select(x, settle(mul(x, factor)), is_finite(x)); }

fn scaled_at(i: u32, factor: f32) -> f32 { return scaled(x_at(i), factor); }

// The first column from c on, in steps of a workgroup, whose key is within low .. high; `end` or more if there is none.
// Where few are, no invocation waits for what another does with one of its own.
fn next_between(c: u32, end: u32, start: u32, factor: f32, low: u32, high: u32) -> u32 {
    var at = c;
    while (at < end) {
        if (key_of(scaled_at(start + at, factor)) - low <= high - low) { break; }
        at += GROUP;
    }
    return at;
}
