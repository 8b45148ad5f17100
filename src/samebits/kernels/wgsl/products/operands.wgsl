// Floats rounded to the weight's type, as products read them: runs of 16, filled up with zeros.
@compute @workgroup_size(GROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = linear_group(group, groups) * GROUP + lane;
    let token = i / (P.runs * 4u);
    let four = i % (P.runs * 4u);
    if (token >= P.num_tokens) { return; }
    let from_x = x_row(P.first_token + token);
    var values: vec4<f32>;
    //: each e < 4
    let column_$e = four * 4u + $eu;
    if (column_$e < P.k) { values[$e] = as_operand(x_at(from_x + column_$e)); }
    if (!is_operand(values[$e])) { refuse(BAD_X); }
    //: end
    fours[i] = bitcast<vec4<u32>>(values);
}
