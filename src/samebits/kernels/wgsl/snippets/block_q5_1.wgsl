//: needs block_heads, float16
struct Head { d_m: vec4<u32>, fifth: vec4<u32> }
struct Scales { d: f32, m: f32 }

fn load_head(column: u32, row: u32, rows: u32) -> Head {
    return Head(texel(column, row, rows), texel(column + 1u, row, rows));
}
fn next_block(head: Head) -> Head { return Head(head.d_m.yzwx, head.fifth.yzwx); }
fn scales_of(head: Head) -> Scales { return Scales(widen_f16(head.d_m.x & 0xffffu), widen_f16(head.d_m.x >> 16u)); }
fn load_codes(head: Head, column: u32, block: u32, row: u32, rows: u32) -> Codes {
    return with_fifth_bits(nibbles(texel(column + 2u + block, row, rows)), head.fifth.x);
}
fn term(low: i32, high: i32, s: Scales, sa: f32, asum: i32) -> f32 {
    return add(mul(f32(low + high), mul(s.d, sa)), mul(f32(asum), mul(s.m, sa)));
}
fn element(code: i32, half: u32, s: Scales) -> f32 { return add(mul(s.d, f32(code)), s.m); }
