//: needs bucket_sums, weights
// A workgroup takes a row: the last place kept among those of the chosen bucket, eight bits at a time.
const KEY_STEPS = 4u;
var<workgroup> found_rank: vec2<u32>;  // the bits found so far, of the complement of the key and of the index
var<workgroup> need: vec2<u32>;
var<workgroup> keys: vec2<u32>;  // of the chosen bucket, the lowest and the highest

// The eight bits of a place that a step looks at; 256 where its earlier bits are others.
fn digit_of(place: vec2<u32>, found: vec2<u32>, step: u32) -> u32 {
    if (step < KEY_STEPS) {
        let shift = 24u - 8u * step;
        return select(256u, (place.x >> shift) & 255u, step == 0u || (place.x >> (shift + 8u)) == found.x);
    }
    let shift = 8u * (P.num_steps - 1u - step);
    let is_same = place.x == found.x && (place.y >> (shift + 8u)) == found.y;
    return select(256u, (place.y >> shift) & 255u, is_same);
}

fn add_place(c: u32, start: u32, row: Row, step: u32) {
    let x = scaled_at(start + c, row.factor);
    let key = key_of(x);
    let digit = digit_of(vec2(~key, c), found_rank, step);
    if (digit < 256u && key >= keys.x && key <= keys.y) { add_to_bucket(digit, weight_of(x, c, row)); }
}

@compute @workgroup_size(GROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group.z * groups.y + group.y;
    if (row >= P.num_rows) { return; }
    let of_row = row_of(row);
    let start = row_start(row);
    if (lane == 0u) {
        keys = vec2(state_word(row, LOW_KEY), state_word(row, HIGH_KEY));
        need = vec2(state_word(row, NEED), state_word(row, NEED + 1u));
        found_rank = vec2<u32>(0u, 0u);
    }
    let within = workgroupUniformLoad(&keys);
    if (within.x > within.y) { return; }
    for (var step = 0u; step < P.num_steps; step++) {
        clear_buckets(lane);
        workgroupBarrier();
        for (var part = 0u; part < P.num_parts; part++) {
            let list = (row * P.num_parts + part) * (P.list_length + 1u);
            let count = lists[list];
            if (count <= P.list_length) {
                for (var i = lane; i < count; i += GROUP) { add_place(lists[list + 1u + i], start, of_row, step); }
                continue;
            }
            let end = min((part + 1u) * PART, P.length);
            for (var c = part * PART + lane; c < end; c += GROUP) { add_place(c, start, of_row, step); }
        }
        workgroupBarrier();
        if (lane == 0u) {
            let found = find_bucket(need);
            need = found.need;
            if (step < KEY_STEPS) { found_rank.x = (found_rank.x << 8u) | found.bucket; }
            else { found_rank.y = (found_rank.y << 8u) | found.bucket; }
        }
        workgroupBarrier();
    }
    if (lane == 0u) {
        state[row * STATE_WORDS + LAST_KEY] = ~found_rank.x;
        state[row * STATE_WORDS + LAST_INDEX] = found_rank.y;
    }
}
