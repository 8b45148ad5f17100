// Four words of a value, 0 behind its end.
fn value_word(cell: u32, nth: u32) -> u32 {
    if (nth >= V_WORDS) { return 0u; }
    return v[cell + nth];
}
fn value_quad(cell: u32, nth: u32) -> vec4<u32> {
    let at = nth * 4u;
    return vec4(value_word(cell, at), value_word(cell, at + 1u), value_word(cell, at + 2u), value_word(cell, at + 3u));
}
