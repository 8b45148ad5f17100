//: needs float16
fn as_operand(x: f32) -> f32 { return widen_f16(narrow_f16(x)); }
fn is_operand(x: f32) -> bool { return is_finite(x); }
