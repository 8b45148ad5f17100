//: needs texels
fn four_elements(four: u32, row: u32, rows: u32) -> vec4<f32> {
    let eight = texel(four >> 1u, row, rows);
    let two = select(eight.xy, eight.zw, (four & 1u) == 1u);
    return bitcast<vec4<f32>>(vec4(two.x << 16u, two.x & 0xffff0000u, two.y << 16u, two.y & 0xffff0000u));
}
