// Four words of a key, 0 behind its end.
fn key_word(cell: u32, nth: u32) -> u32 {
    if (nth >= K_WORDS) { return 0u; }
    return k[cell + nth];
}
fn key_quad(cell: u32, nth: u32) -> vec4<u32> {
    let at = nth * 4u;
    return vec4(key_word(cell, at), key_word(cell, at + 1u), key_word(cell, at + 2u), key_word(cell, at + 3u));
}
