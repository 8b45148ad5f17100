// rounding.wgsl for four numbers side by side.
fn rounded4(v: vec4<f32>) -> vec4<f32> { return bitcast<vec4<f32>>(bitcast<vec4<u32>>(v) ^ vec4(P.zero)); }
fn mul4(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> { return rounded4(a * b); }
fn add4(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> { return rounded4(a + b); }
fn sub4(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> { return rounded4(a - b); }
fn exact4(v: vec4<f32>) -> vec4<f32> { return v; }

fn settle4(v: vec4<f32>) -> vec4<f32> {
    let bits = bitcast<vec4<u32>>(v);
    return bitcast<vec4<f32>>(select(bits, vec4(0u), (bits & vec4(0x7fffffffu)) < vec4(0x26800000u)));
}

// +0 in the place of elements beyond the `left` that a row still has.
fn within(v: vec4<f32>, left: u32) -> vec4<f32> { return select(vec4(0.0), v, vec4(0u, 1u, 2u, 3u) < vec4(left)); }
