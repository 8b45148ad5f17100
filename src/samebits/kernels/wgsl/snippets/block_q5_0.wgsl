//: needs block_heads, float16
struct Head { d: vec4<u32>, fifth: Words }
alias Scales = f32;

fn load_head(column: u32, row: u32, rows: u32) -> Head {
    return Head(texel(column, row, rows), Words(texel(column + 1u, row, rows), texel(column + 2u, row, rows)));
}
fn next_block(head: Head) -> Head { return Head(next_half(head.d), next_word(head.fifth)); }
fn scales_of(head: Head) -> Scales { return widen_f16(head.d.x & 0xffffu); }
fn load_codes(head: Head, column: u32, block: u32, row: u32, rows: u32) -> Codes {
    return with_fifth_bits(nibbles(texel(column + 3u + block, row, rows)), head.fifth.a.x);
}
fn term(low: i32, high: i32, d: Scales, sa: f32, asum: i32) -> f32 { return mul(f32(low + high - 16 * asum), mul(d, sa)); }
fn element(code: i32, half: u32, d: Scales) -> f32 { return mul(d, f32(code - 16)); }
