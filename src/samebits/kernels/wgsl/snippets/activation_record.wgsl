// A block of int8 activations as products read it: codes 0 to 15, codes 16 to 31, (scale, sum of codes, 0, 0).
fn note(token: u32, block: u32, low: vec4<u32>, high: vec4<u32>, scale: f32) {
    var sum = 0;
    //: each i < 4
    sum += dot4I8Packed(low[$i], 0x01010101u) + dot4I8Packed(high[$i], 0x01010101u);
    //: end
    let at = (token * BLOCKS + block) * 3u;
    blocks[at] = low;
    blocks[at + 1u] = high;
    blocks[at + 2u] = vec4(bitcast<u32>(scale), bitcast<u32>(sum), 0u, 0u);
}
