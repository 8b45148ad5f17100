//: needs sigmoid
fn combined(a: f32, gate: f32) -> f32 { return settle(mul(a, sigmoid(gate))); }
