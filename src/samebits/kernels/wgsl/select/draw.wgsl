//: needs elementary, row_state, scanning, summaries, threefry
// A workgroup takes a part of a row: the first place of every invocation among what the filters keep, with noise.
const WIDEST_NOISE = 24.0;  // more than the noise of two tokens can differ by, which is 19.5

// Of the elements of an invocation. Called with a constant for has_least: lanes without branches of their own would
// compute exp for every row.
fn first_drawn(part: u32, lane: u32, row: u32, has_least: bool) -> vec2<u32> {
    let of_row = row_of(row);
    let start = row_start(row);
    let end = min((part + 1u) * PART, P.length);
    let low = max(of_row.last.x, key_of(sub(of_row.top, WIDEST_NOISE)));
    let noise_key = vec2(state_word(row, NOISE_KEY), state_word(row, NOISE_KEY + 1u));
    var best = NO_PLACE;
    var c = part * PART + lane;
    loop {
        c = next_between(c, end, start, of_row.factor, low, 0xffffffffu);
        if (c >= end) { break; }
        let x = scaled_at(start + c, of_row.factor);
        var is_kept = !ranks_before(of_row.last, vec2(key_of(x), c));
        if (has_least) { is_kept = is_kept && exp_exact(sub(x, of_row.top)) >= state_value(row, LEAST); }
        let key = key_of(add(x, gumbel(noise_key, c)));
        best = select(best, vec2(key, c), is_kept && key > best.x);  // of equal ones the lowest came first
        c += GROUP;
    }
    return best;
}

@compute @workgroup_size(GROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group.z * groups.y + group.y;
    if (row >= P.num_rows) { return; }
    if (state_word(row, IS_DRAWN) == 0u) { return; }
    var best: vec2<u32>;
    if (state_value(row, LEAST) > 0.0) {
        best = first_drawn(group.x, lane, row, true);
    } else {
        best = first_drawn(group.x, lane, row, false);
    }
    let at = summary_at(row, group.x, lane);
    summaries[at + BEST_KEY] = best.x;
    summaries[at + BEST_INDEX] = best.y;
}
