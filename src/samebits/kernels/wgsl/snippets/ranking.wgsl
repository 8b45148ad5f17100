// Floats as integers in their order, and rows in rank order: the largest value first, of equal ones the lowest index.

// Rises with x; -0 and +0 have one key, above 0 like every other.
fn key_of(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let pattern = select(bits, 0u, (bits & 0x7fffffffu) == 0u);
    return pattern ^ select(0x80000000u, 0xffffffffu, (pattern >> 31u) == 1u);
}

// The value of a key; a zero comes back as +0.
fn value_of(key: u32) -> f32 { return bitcast<f32>(key ^ select(0xffffffffu, 0x80000000u, (key >> 31u) == 1u)); }

// A place in the ranking: (key, index).
fn ranks_before(a: vec2<u32>, b: vec2<u32>) -> bool { return a.x > b.x || (a.x == b.x && a.y < b.y); }

const NO_PLACE = vec2<u32>(0u, 0xffffffffu);  // behind every other
