// The queries' element e, of all pairs.
fn query_quads(e: u32) -> Quads {
    let at = e * 4u;
    return Quads(queries[at], queries[at + 1u], queries[at + 2u], queries[at + 3u]);
}
