//: needs block_heads, float16
// The head of Q4_K and Q5_K as files have it, its 6-bit scales and minimums taken apart: a byte each, the current lowest.
struct SuperHead { d: f32, m: f32, scales: vec2<u32>, mins: vec2<u32> }
struct Scales { d: f32, m: f32, sub: i32, msub: i32 }

fn super_head(w: vec4<u32>) -> SuperHead {
    let upper = (w.yz >> vec2(2u)) & vec2(0x30303030u);
    let scales = vec2(w.y & 0x3f3f3f3fu, (w.w & 0x0f0f0f0fu) | upper.x);
    let mins = vec2(w.z & 0x3f3f3f3fu, ((w.w >> 4u) & 0x0f0f0f0fu) | upper.y);
    return SuperHead(widen_f16(w.x & 0xffffu), -widen_f16(w.x >> 16u), scales, mins);
}

fn next_byte(w: vec2<u32>) -> vec2<u32> { return vec2((w.x >> 8u) | (w.y << 24u), w.y >> 8u); }
fn next_super(h: SuperHead) -> SuperHead { return SuperHead(h.d, h.m, next_byte(h.scales), next_byte(h.mins)); }
fn super_scales(h: SuperHead) -> Scales { return Scales(h.d, h.m, i32(h.scales.x & 63u), i32(h.mins.x & 63u)); }

fn term(low: i32, high: i32, s: Scales, sa: f32, asum: i32) -> f32 {
    return add(mul(f32((low + high) * s.sub), mul(s.d, sa)), mul(f32(asum * s.msub), mul(s.m, sa)));
}
fn element(code: i32, half: u32, s: Scales) -> f32 {
    return add(mul(mul(s.d, f32(s.sub)), f32(code)), mul(s.m, f32(s.msub)));
}
