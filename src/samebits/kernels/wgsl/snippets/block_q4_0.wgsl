//: needs block_heads, float16
alias Head = vec4<u32>;
alias Scales = f32;

fn load_head(column: u32, row: u32, rows: u32) -> Head { return texel(column, row, rows); }
fn next_block(head: Head) -> Head { return next_half(head); }
fn scales_of(head: Head) -> Scales { return widen_f16(head.x & 0xffffu); }
fn load_codes(head: Head, column: u32, block: u32, row: u32, rows: u32) -> Codes {
    return nibbles(texel(column + 1u + block, row, rows));
}
fn term(low: i32, high: i32, d: Scales, sa: f32, asum: i32) -> f32 { return mul(f32(low + high - 8 * asum), mul(d, sa)); }
fn element(code: i32, half: u32, d: Scales) -> f32 { return mul(d, f32(code - 8)); }
