// Column c of the nth eight; a byte of q4_0 holds element j and j + 16.
fn column_of(nth: u32, c: u32) -> u32 {
    if (V_Q8) { return nth * 8u + c; }
    return nth / 4u * 32u + nth % 4u * 4u + c % 4u + c / 4u * 16u;
}
