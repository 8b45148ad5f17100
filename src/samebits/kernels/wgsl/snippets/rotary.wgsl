// An element of a pair that is turned, settled: a * cos - b * sin for the first, b * cos + a * sin for the second.
fn rotated(x: f32, other: f32, cosine: f32, sine: f32, is_first: bool) -> f32 {
    let along = mul(x, cosine);
    let across = mul(other, sine);
    return settle(select(add(along, across), sub(along, across), is_first));
}
