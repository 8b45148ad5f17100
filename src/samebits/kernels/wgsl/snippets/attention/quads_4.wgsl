//: needs rounding4
// Numbers of all pairs of a tile: sixteen. Without loops, which some compilers keep as they are written.
struct Quads { a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32> }

fn same_for_quads(x: f32) -> Quads { return Quads(vec4(x), vec4(x), vec4(x), vec4(x)); }
fn none_of_quads() -> Quads { return same_for_quads(0.0); }
fn add_quads(x: Quads, y: Quads) -> Quads {
    return Quads(add4(x.a, y.a), add4(x.b, y.b), add4(x.c, y.c), add4(x.d, y.d));
}
fn max_quads(x: Quads, y: Quads) -> Quads {
    return Quads(max(x.a, y.a), max(x.b, y.b), max(x.c, y.c), max(x.d, y.d));
}

// x + y * factor; the product is rounded, or exact.
fn add_rounded(x: Quads, y: Quads, factor: f32) -> Quads {
    let f = vec4(factor);
    return Quads(
        add4(x.a, mul4(y.a, f)), add4(x.b, mul4(y.b, f)), add4(x.c, mul4(y.c, f)), add4(x.d, mul4(y.d, f)),
    );
}
fn add_exact(x: Quads, y: Quads, factor: f32) -> Quads {
    return Quads(
        add4(x.a, exact4(y.a * factor)), add4(x.b, exact4(y.b * factor)),
        add4(x.c, exact4(y.c * factor)), add4(x.d, exact4(y.d * factor)),
    );
}
