// Four words of a value whose heads are whole vec4s.
fn value_quad(cell: u32, nth: u32) -> vec4<u32> { return v[cell + nth]; }
