//: needs sigmoid
// min and max may drop a NaN, so it is looked for by bits.
fn clamped(x: f32, low: f32, high: f32) -> f32 {
    let is_nan = (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
    return bitcast<f32>(select(bitcast<u32>(min(max(x, low), high)), bitcast<u32>(x), is_nan));
}

// (up + 1) * (gate * sigmoid(alpha * gate)), gate at most the limit, up within it.
fn combined(gate_given: f32, up_given: f32) -> f32 {
    let gate = clamped(gate_given, gate_given, P.limit);
    let up = clamped(up_given, -P.limit, P.limit);
    return settle(mul(add(up, 1.0), mul(gate, sigmoid(settle(mul(gate, P.alpha))))));
}
