// Column c of the nth eight.
fn column_of(nth: u32, c: u32) -> u32 { return nth * 8u + c; }
