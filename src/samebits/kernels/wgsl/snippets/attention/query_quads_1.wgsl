// The queries' element e, of all pairs.
fn query_quads(e: u32) -> Quads { return Quads(queries[e]); }
