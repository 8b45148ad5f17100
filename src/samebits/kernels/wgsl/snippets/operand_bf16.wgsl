//: needs bfloat16
fn as_operand(x: f32) -> f32 { return widen_bf16(narrow_bf16(x)); }
fn is_operand(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) <= 0x5f000000u; }  // 2^63
