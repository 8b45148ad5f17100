//: needs gelu
fn combined(gate: f32, up: f32) -> f32 { return settle(mul(gelu_erf(gate), up)); }
