// Sums of P * v for eight columns and all pairs.
struct Sums { a: Quads, b: Quads, c: Quads, d: Quads, e: Quads, f: Quads, g: Quads, h: Quads }

fn no_sums() -> Sums {
    let none = none_of_quads();
    return Sums(none, none, none, none, none, none, none, none);
}

fn add_sums(x: Sums, y: Sums) -> Sums {
    return Sums(
        add_quads(x.a, y.a), add_quads(x.b, y.b), add_quads(x.c, y.c), add_quads(x.d, y.d),
        add_quads(x.e, y.e), add_quads(x.f, y.f), add_quads(x.g, y.g), add_quads(x.h, y.h),
    );
}

fn add_values(x: Sums, given: Quads, values: Octet) -> Sums {
    let weights = weights_for(given, values);
    return Sums(
        add_value(x.a, weights, values.low.x), add_value(x.b, weights, values.low.y),
        add_value(x.c, weights, values.low.z), add_value(x.d, weights, values.low.w),
        add_value(x.e, weights, values.high.x), add_value(x.f, weights, values.high.y),
        add_value(x.g, weights, values.high.z), add_value(x.h, weights, values.high.w),
    );
}
