//: needs elementary, threefry
// A row's settings as they are given; where an op has none, its rows have temperature 0.
fn temperature_of(row: u32) -> f32 { return temperature_at(temperature_row(row)); }

// What logits are multiplied by.
fn factor_of(row: u32) -> f32 { return select(1.0, recip(temperature_of(row)), temperature_of(row) > 0.0); }

// Of top-k; 0: all.
fn num_kept(row: u32) -> u32 {
    let k = u32(max(i32(top_k_at(top_k_row(row))), 0));
    return select(0u, k, k <= P.length);
}

// Whether noise decides among all tokens.
fn is_plain(row: u32) -> bool {
    let is_filtered = num_kept(row) > 0u || top_p_at(top_p_row(row)) < 1.0 || min_p_at(min_p_row(row)) > 0.0;
    return temperature_of(row) > 0.0 && !is_filtered;
}

fn noise_key_of(row: u32) -> vec2<u32> {
    let seed = vec2(u32(seed_at(seed_row(row))), u32(seed_at(seed_row(row) + 1u)));
    return threefry(seed, vec2(u32(sample_index_at(sample_index_row(row))), u32(position_at(position_row(row)))));
}
