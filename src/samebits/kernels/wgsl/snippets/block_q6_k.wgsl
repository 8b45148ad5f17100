//: needs block_heads, float16
struct Head { d: f32, scales: vec4<u32> }
struct Scales { d: f32, low: i32, high: i32 }

fn load_head(column: u32, row: u32, rows: u32) -> Head {
    return Head(widen_f16(texel(column + 1u, row, rows).x), texel(column, row, rows));
}
fn next_block(head: Head) -> Head { return Head(head.d, next_half(head.scales)); }
fn scales_of(head: Head) -> Scales {
    let pair = bitcast<i32>(head.scales.x);
    return Scales(head.d, extractBits(pair, 0u, 8u), extractBits(pair, 8u, 8u));
}
fn load_codes(head: Head, column: u32, block: u32, row: u32, rows: u32) -> Codes {
    let two = texel(column + 2u + (block >> 1u), row, rows);
    let bits = select(two.xy, two.zw, (block & 1u) == 1u);
    let codes = nibbles(texel(column + 6u + block, row, rows));
    return Codes(centered(codes.low, bits.x), centered(codes.high, bits.y));
}

// Bits 4 and 5 join the lower ones (bits 2g of byte i are those of element 4g + i), and 32 is taken off every byte.
fn centered(lower: vec4<u32>, upper: u32) -> vec4<u32> {
    let bits = (vec4(upper) >> vec4(0u, 2u, 4u, 6u)) & vec4(0x03030303u);
    let codes = lower | (bits << vec4(4u));
    return ((codes | vec4(0x80808080u)) - vec4(0x20202020u)) ^ vec4(0x80808080u);
}
fn term(low: i32, high: i32, s: Scales, sa: f32, asum: i32) -> f32 {
    return mul(f32(low * s.low + high * s.high), mul(s.d, sa));
}
fn element(code: i32, half: u32, s: Scales) -> f32 {
    return mul(mul(s.d, f32(select(s.low, s.high, half == 1u))), f32(code));
}
