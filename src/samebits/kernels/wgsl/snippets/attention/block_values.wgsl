//: needs rounding4, float16
// Values in q8_0 or q4_0, eight columns of a block at a time. P is float16(p * d), times the integer code: exact.
// A tile has four pairs.
struct Octet { low: vec4<f32>, high: vec4<f32>, scale: f32 }

fn weight4(p: vec4<f32>) -> vec4<f32> { return p; }

fn bytes_of(word: u32) -> vec4<f32> {
    let x = bitcast<i32>(word);
    return vec4<f32>(vec4((x << 24u) >> 24u, (x << 16u) >> 24u, (x << 8u) >> 24u, x >> 24u));
}

fn nibbles_of(word: u32) -> vec4<f32> {
    let x = vec4(word, word >> 8u, word >> 16u, word >> 24u) & vec4(15u);
    return exact4(vec4<f32>(x) - vec4(8.0));
}

// Eight columns of the value at a cell; +0 where there is none.
fn octet_at(cell: u32, nth: u32) -> Octet {
    if (cell == NO_PAGE) { return Octet(vec4<f32>(), vec4<f32>(), 0.0); }
    let block = cell + nth / 4u;
    let scale = bitcast<f32>(v[P.v_scales + block]);
    if (!is_finite(scale)) { refuse(BAD_VALUE); }
    if (V_Q8) {
        let at = block * 8u + nth % 4u * 2u;
        return Octet(bytes_of(v[at]), bytes_of(v[at + 1u]), scale);
    }
    let word = v[block * 4u + nth % 4u];
    return Octet(nibbles_of(word), nibbles_of(word >> 4u), scale);
}

fn scaled(p: f32, scale: f32) -> f32 { return widen_f16(narrow_f16(mul(p, scale))); }

fn weights_for(weights: Quads, values: Octet) -> Quads {
    let p = weights.a;
    let d = values.scale;
    return Quads(vec4(scaled(p.x, d), scaled(p.y, d), scaled(p.z, d), scaled(p.w, d)));
}

fn add_value(sum: Quads, weights: Quads, value: f32) -> Quads { return add_exact(sum, weights, value); }
