//: needs logarithm
// Threefry-2x32 with 20 rounds as core/numerics/counter.py defines it, and the noise of sampling made of it.
fn threefry_round(x: vec2<u32>, r: u32) -> vec2<u32> {
    let sum = x.x + x.y;
    return vec2(sum, ((x.y << r) | (x.y >> (32u - r))) ^ sum);
}

fn threefry_rounds(x: vec2<u32>, r: vec4<u32>) -> vec2<u32> {
    return threefry_round(threefry_round(threefry_round(threefry_round(x, r.x), r.y), r.z), r.w);
}

fn threefry(key: vec2<u32>, counter: vec2<u32>) -> vec2<u32> {
    let k2 = key.x ^ key.y ^ 0x1bd11bdau;
    let even = vec4<u32>(13u, 15u, 26u, 6u);
    let odd = vec4<u32>(17u, 29u, 16u, 24u);
    var x = threefry_rounds(counter + key, even) + vec2(key.y, k2 + 1u);
    x = threefry_rounds(x, odd) + vec2(k2, key.x + 2u);
    x = threefry_rounds(x, even) + vec2(key.x, key.y + 3u);
    x = threefry_rounds(x, odd) + vec2(key.y, k2 + 4u);
    return threefry_rounds(x, even) + vec2(k2, key.x + 5u);
}

// -log(-log u) of a token, u from the first word of a request's key and the token's id.
fn gumbel(key: vec2<u32>, token: u32) -> f32 {
    let word = threefry(key, vec2(token, 0u)).x;
    let u = exact(f32(word >> 9u) + 0.5) * 1.1920928955078125e-07;
    return -log_exact(-log_exact(u));
}
