// Exact integer sums over the halves of a block whose codes are int8, a word of four products at a time.
const RECORD = 3u;  // vec4 of a block of activations: 8 words of int8, then the rest
struct Activations { low: vec4<u32>, high: vec4<u32> }
struct Part { low: u32, high: u32 }

fn load_activations(at: u32) -> Activations { return Activations(x[at], x[at + 1u]); }
fn part_of(codes: Codes, i: u32) -> Part { return Part(codes.low[i], codes.high[i]); }
fn low_part(p: Part, a: Activations, i: u32) -> i32 { return dot4I8Packed(p.low, a.low[i]); }
fn high_part(p: Part, a: Activations, i: u32) -> i32 { return dot4I8Packed(p.high, a.high[i]); }
fn whole(sum: i32) -> i32 { return sum; }
