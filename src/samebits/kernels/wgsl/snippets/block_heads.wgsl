//: needs texels
// What blocks of 32 share: their codes as packed int8, and fields of a head that come round one block after another.
struct Codes { low: vec4<u32>, high: vec4<u32> }  // elements 0 to 15, 16 to 31

fn nibbles(q: vec4<u32>) -> Codes { return Codes(q & vec4(0x0f0f0f0fu), (q >> vec4(4u)) & vec4(0x0f0f0f0fu)); }

// Eight fields of 16 bits: those of blocks 0 to 3 in the lower halves. The first word's lower half is the next one's then.
fn next_half(w: vec4<u32>) -> vec4<u32> { return vec4(w.y, w.z, w.w, w.x >> 16u); }

struct Words { a: vec4<u32>, b: vec4<u32> }  // eight fields of 32 bits, the current one first

fn next_word(w: Words) -> Words { return Words(vec4(w.a.y, w.a.z, w.a.w, w.b.x), w.b.yzwx); }

// Bit 4 of every code: bit g of byte i is that of element 4g + i.
fn with_fifth_bits(codes: Codes, bits: u32) -> Codes {
    let shifts = vec4(0u, 1u, 2u, 3u);
    let low = (vec4(bits) >> shifts) & vec4(0x01010101u);
    let high = (vec4(bits >> 4u) >> shifts) & vec4(0x01010101u);
    return Codes(codes.low | (low << vec4(4u)), codes.high | (high << vec4(4u)));
}
