//: needs bfloat16, elementary, float16
// An invocation answers one question: a kind, and up to three operands. backends/webgpu/questions.py asks them, with the
// numbers of kinds that stand here, and knows what is right.
fn answer(kind: u32, word: u32, a: f32, b: f32, c: f32) -> u32 {
    switch (kind) {
        case 0u: { return bitcast<u32>(mul(a, b)); }
        case 1u: { return bitcast<u32>(add(mul(a, b), c)); }
        case 2u: { return bitcast<u32>(a * b + c); }
        case 3u: { return bitcast<u32>(add(a, b)); }
        case 4u: { return bitcast<u32>(sub(a, b)); }
        case 5u: { return bitcast<u32>(exp_exact(a)); }
        case 6u: { return bitcast<u32>(f32(bitcast<i32>(word))); }
        case 7u: { return bitcast<u32>(f32(word)); }
        case 8u: { return bitcast<u32>(dot4I8Packed(word, bitcast<u32>(b))); }
        case 9u: { return bitcast<u32>(widen_f16(word)); }
        case 10u: { return bitcast<u32>(widen_bf16(word)); }
        default: { return narrow_f16(a) | (narrow_bf16(a) << 16u); }
    }
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let asked = questions[id.x];
    let floats = bitcast<vec3<f32>>(asked.yzw);
    answers[id.x] = answer(asked.x, asked.y, floats.x, floats.y, floats.z);
}
