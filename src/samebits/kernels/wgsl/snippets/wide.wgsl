// Integers of 64 bits without a sign as two words, the low one first.
fn wide_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2(low, a.y + b.y + select(0u, 1u, low < a.x));
}

fn wide_sub(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return vec2(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}

fn wide_less(a: vec2<u32>, b: vec2<u32>) -> bool { return a.y < b.y || (a.y == b.y && a.x < b.x); }

// a * 2^-16 times share, rounded up, for share <= 2^16 and a < 2^62.
fn wide_share(a: vec2<u32>, share: u32) -> vec2<u32> {
    let rest = (share * (a.x & 0xffffu) + 0xffffu) >> 16u;  // fits: 2^16 * (2^16 - 1) + 2^16 - 1
    let middle = share * (a.x >> 16u);
    let low = share * (a.y & 0xffffu);
    let high = share * (a.y >> 16u);
    let shifted = wide_add(vec2(low << 16u, low >> 16u), vec2(0u, high));
    return wide_add(wide_add(shifted, vec2(middle, 0u)), vec2(rest, 0u));
}
