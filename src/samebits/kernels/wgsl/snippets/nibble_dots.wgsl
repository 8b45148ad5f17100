// Exact integer sums over the halves of a block whose codes are 0 to 15, two products at a time: with q in the halves of
// one word and a, the other way round, in those of the other, the upper half of their product is q0 a0 + q1 a1. Eight of
// them stay below 2^15, and so does what gathers in the lower half.
const RECORD = 5u;  // vec4 of a block of activations: 16 words of two codes, then the rest
struct Activations { low_even: vec4<u32>, low_odd: vec4<u32>, high_even: vec4<u32>, high_odd: vec4<u32> }
struct Part { low_even: u32, low_odd: u32, high_even: u32, high_odd: u32 }

fn load_activations(at: u32) -> Activations { return Activations(x[at], x[at + 1u], x[at + 2u], x[at + 3u]); }
fn part_of(codes: Codes, i: u32) -> Part {
    let low = codes.low[i];
    let high = codes.high[i];
    return Part(low & 0x000f000fu, (low >> 8u) & 0x000f000fu, high & 0x000f000fu, (high >> 8u) & 0x000f000fu);
}
fn low_part(p: Part, a: Activations, i: u32) -> i32 {
    return bitcast<i32>(p.low_even * a.low_even[i] + p.low_odd * a.low_odd[i]);
}
fn high_part(p: Part, a: Activations, i: u32) -> i32 {
    return bitcast<i32>(p.high_even * a.high_even[i] + p.high_odd * a.high_odd[i]);
}
fn whole(sum: i32) -> i32 { return (sum + 0x8000) >> 16u; }
