//: needs texels, float16
fn four_elements(four: u32, row: u32, rows: u32) -> vec4<f32> {
    let eight = texel(four >> 1u, row, rows);
    let two = select(eight.xy, eight.zw, (four & 1u) == 1u);
    let low = two & vec2(0xffffu);
    let high = two >> vec2(16u);
    return vec4(widen_f16(low.x), widen_f16(high.x), widen_f16(low.y), widen_f16(high.y));
}
