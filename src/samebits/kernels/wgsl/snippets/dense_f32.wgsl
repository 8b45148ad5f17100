//: needs texels
fn four_elements(four: u32, row: u32, rows: u32) -> vec4<f32> { return bitcast<vec4<f32>>(texel(four, row, rows)); }
