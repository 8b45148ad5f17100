fn as_operand(x: f32) -> f32 { return x; }
fn is_operand(x: f32) -> bool { return is_finite(x); }
