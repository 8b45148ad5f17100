// The operations of rounding.wgsl on four numbers at once.
fn rounded4(x: vec4<f32>) -> vec4<f32> { return bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) ^ vec4(P.zero)); }
fn mul4(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> { return rounded4(a * b); }
fn add4(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> { return rounded4(a + b); }
fn sub4(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> { return rounded4(a - b); }
fn settle4(x: vec4<f32>) -> vec4<f32> {
    let bits = bitcast<vec4<u32>>(x);
    return bitcast<vec4<f32>>(select(bits, vec4(0u), (bits & vec4(0x7fffffffu)) < vec4(0x26800000u)));
}
