//: needs rounding4, float16, bfloat16
// Values in f32, f16 or bf16, eight columns at a time. P is rounded to their type.
const LARGEST_VALUE = select(select(0x5f00u, 0x7bffu, V_F16), 0x7f7fffffu, V_F32);

struct Octet { low: vec4<f32>, high: vec4<f32> }

fn weight_of(p: f32) -> f32 {
    if (V_F32) { return p; }
    if (V_F16) { return widen_f16(narrow_f16(p)); }
    return widen_bf16(narrow_bf16(p));
}

fn weight4(p: vec4<f32>) -> vec4<f32> { return vec4(weight_of(p.x), weight_of(p.y), weight_of(p.z), weight_of(p.w)); }

fn widen_value(half: u32) -> f32 {
    if (V_F16) { return widen_finite_f16(half); }
    return widen_bf16(half);
}

fn check_values(magnitudes: vec4<u32>) {
    let largest = max(max(magnitudes.x, magnitudes.y), max(magnitudes.z, magnitudes.w));
    if (largest > LARGEST_VALUE) { refuse(BAD_VALUE); }
}

// Columns 8 * nth and on of the value at a cell; +0 where there is none.
fn octet_at(cell: u32, nth: u32) -> Octet {
    if (cell == NO_PAGE) { return Octet(vec4<f32>(), vec4<f32>()); }
    if (V_F32) {
        let low = value_quad(cell, nth * 2u);
        let high = value_quad(cell, nth * 2u + 1u);
        check_values(max(low & vec4(0x7fffffffu), high & vec4(0x7fffffffu)));
        return Octet(bitcast<vec4<f32>>(low), bitcast<vec4<f32>>(high));
    }
    let words = value_quad(cell, nth);
    let low = words & vec4(0xffffu);
    let high = words >> vec4(16u);
    check_values(max(low & vec4(0x7fffu), high & vec4(0x7fffu)));
    return Octet(
        vec4(widen_value(low.x), widen_value(high.x), widen_value(low.y), widen_value(high.y)),
        vec4(widen_value(low.z), widen_value(high.z), widen_value(low.w), widen_value(high.w)),
    );
}

fn weights_for(weights: Quads, values: Octet) -> Quads { return weights; }

fn add_value(sum: Quads, weights: Quads, value: f32) -> Quads {
    if (V_F32) { return add_rounded(sum, weights, value); }
    return add_exact(sum, weights, value);  // of 16-bit numbers
}
