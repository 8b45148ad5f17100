//: needs rounding4
// An invocation takes four pairs of a head, or two where pairs lie side by side; further ones copy what is not turned.
fn turned(a: vec4<f32>, b: vec4<f32>, cos: vec4<f32>, sin: vec4<f32>) -> vec4<f32> {
    return settle4(add4(mul4(a, cos), mul4(b, sin)));
}

// Pairs (i, i + R) of four from i on.
fn turn_halves(from_x: u32, into_y: u32, angles: u32, i: u32, turns: bool) {
    let left = R - i;
    let a = x_four(from_x + i, left);
    let b = x_four(from_x + R + i, left);
    let low = table_four(angles + 2u * i, 2u * left);
    let high = table_four(angles + 2u * i + 4u, max(2u * left, 4u) - 4u);
    let cos = vec4(low.x, low.z, high.x, high.z);
    let sin = vec4(low.y, low.w, high.y, high.w);
    y_put(into_y + i, left, select(a, turned(a, -b, cos, sin), turns));
    y_put(into_y + R + i, left, select(b, turned(b, a, cos, sin), turns));
}

// Pairs (i, i + 1) and (i + 2, i + 3).
fn turn_neighbours(from_x: u32, into_y: u32, angles: u32, i: u32, turns: bool) {
    let left = 2u * R - i;
    let v = x_four(from_x + i, left);
    let t = table_four(angles + i, left);
    let other = vec4(-v.y, v.x, -v.w, v.z);
    y_put(into_y + i, left, select(v, turned(v, other, t.xxzz, t.yyww), turns));
}

@compute @workgroup_size(GROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = linear_group(group, groups) * GROUP + lane;
    if (i >= P.count) { return; }
    let token = i / (HEADS * STEPS);
    let head = (i / STEPS) % HEADS;
    let step = i % STEPS;
    let position = pos_ids_at(pos_ids_row(token));
    let turns = position >= 0 && position < i32(P.num_positions);
    if (!turns && position != -1) { refuse(OUTSIDE_TABLE); }
    let from_x = x_row(token) + head * D;
    let into_y = y_row(token) + head * D;
    let angles = table_row(u32(select(0, position, turns)));
    if (step >= TURNS) {
        let c = 2u * R + (step - TURNS) * 4u;
        y_put(into_y + c, D - c, x_four(from_x + c, D - c));
    } else if (INTERLEAVE) {
        turn_neighbours(from_x, into_y, angles, step * 4u, turns);
    } else {
        turn_halves(from_x, into_y, angles, step * 4u, turns);
    }
}
