// Four words of a key whose heads are whole vec4s.
fn key_quad(cell: u32, nth: u32) -> vec4<u32> { return k[cell + nth]; }
