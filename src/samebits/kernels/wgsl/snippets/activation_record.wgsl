// A block of int8 activations as products read it: codes as snippets/byte_dots.wgsl or nibble_dots.wgsl take them, then
// (scale, sum of codes, 0, 0).
fn note(token: u32, block: u32, low: vec4<u32>, high: vec4<u32>, scale: f32) {
    var sum = 0;
    //: each i < 4
    sum += dot4I8Packed(low[$i], 0x01010101u) + dot4I8Packed(high[$i], 0x01010101u);
    //: end
    let at = (token * P.blocks + block) * select(3u, 5u, IN_PAIRS);
    let rest = vec4(bitcast<u32>(scale), bitcast<u32>(sum), 0u, 0u);
    if (IN_PAIRS) {
        blocks[at] = even_codes(low);
        blocks[at + 1u] = odd_codes(low);
        blocks[at + 2u] = even_codes(high);
        blocks[at + 3u] = odd_codes(high);
        blocks[at + 4u] = rest;
    } else {
        blocks[at] = low;
        blocks[at + 1u] = high;
        blocks[at + 2u] = rest;
    }
}

// Codes 0 and 2, or 1 and 3, of every word in its halves, the first in the upper one; a negative second borrows from it.
fn even_codes(w: vec4<u32>) -> vec4<u32> {
    let first = bitcast<vec4<i32>>(w << vec4(24u)) >> vec4(8u);
    let second = bitcast<vec4<i32>>(w << vec4(8u)) >> vec4(24u);
    return bitcast<vec4<u32>>(first + second);
}
fn odd_codes(w: vec4<u32>) -> vec4<u32> { return even_codes(w >> vec4(8u)); }
