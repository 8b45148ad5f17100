// A packed weight lies in a texture, 16 rows side by side, as products/packing.py lays it out.
fn texel(column: u32, row: u32, rows: u32) -> vec4<u32> {
    return weight_texel(vec2<u32>(((column & 511u) << 4u) + row, (column >> 9u) * P.row_groups + rows));
}
