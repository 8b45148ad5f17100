//: needs rounding4
// Numbers of all pairs of a tile: four.
struct Quads { a: vec4<f32> }

fn none_of_quads() -> Quads { return Quads(vec4<f32>()); }
fn same_for_quads(x: f32) -> Quads { return Quads(vec4(x)); }
fn add_quads(x: Quads, y: Quads) -> Quads { return Quads(add4(x.a, y.a)); }
fn max_quads(x: Quads, y: Quads) -> Quads { return Quads(max(x.a, y.a)); }

// x + y * factor; the product is rounded, or exact.
fn add_rounded(x: Quads, y: Quads, factor: f32) -> Quads { return Quads(add4(x.a, mul4(y.a, vec4(factor)))); }
fn add_exact(x: Quads, y: Quads, factor: f32) -> Quads { return Quads(add4(x.a, exact4(y.a * factor))); }
