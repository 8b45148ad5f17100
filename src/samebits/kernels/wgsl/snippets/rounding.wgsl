// Every float operation of the portable tier is written with these. A compiler may contract a product with a sum, or
// reorder sums; it cannot see that P.zero is 0, so what passes through the exclusive or has been rounded before.
// P.zero is used for nothing else: lavapipe puts the values of uniform words on which conditions depend into the shader.
fn rounded(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ P.zero); }
fn mul(a: f32, b: f32) -> f32 { return rounded(a * b); }
fn add(a: f32, b: f32) -> f32 { return rounded(a + b); }
fn sub(a: f32, b: f32) -> f32 { return rounded(a - b); }

// Says of a product that no rounding happens in it, so that nothing can go wrong without the barrier: its operands are
// integers or have 16 bits. Tests follow every other product to a barrier.
fn exact(x: f32) -> f32 { return x; }

// +0 below 2^-50: by bits, since a device may flush what it compares. NaN and Inf stay.
fn settle(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    return bitcast<f32>(select(bits, 0u, (bits & 0x7fffffffu) < 0x26800000u));
}

// Whether a value is neither NaN nor Inf, by bits: compilers may assume that there are none.
fn is_finite(x: f32) -> bool { return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u; }

// The number of a workgroup in a grid that `linear` made.
fn linear_group(group: vec3<u32>, groups: vec3<u32>) -> u32 { return group.y * groups.x + group.x; }
