//: needs sigmoid
fn combined(gate: f32, up: f32) -> f32 { return settle(mul(silu(gate), up)); }
