//: needs rounding4, tanh, attention/pairs
// What pairs of a tile make of the key at a position: their scores, scaled, capped and biased.

fn minus_inf() -> f32 { return bitcast<f32>(0xff800000u | P.zero); }

struct Logits {
    s: array<vec4<f32>, G>,  // -Inf where not kept
    page: u32,  // NO_PAGE where no pair keeps the position
}

fn kept_at(g: u32, position: i32) -> vec4<bool> {
    var kept = (vec4(position) >= lows[g]) & (vec4(position) <= highs[g]);
    if (HAS_MASK) {
        for (var j = 0u; j < 4u; j++) {
            let at = mask_rows[g][j] + u32(position);
            if (kept[j] && at >= P.mask_size) { refuse(BAD_MASK); }
            kept[j] = kept[j] && at < P.mask_size && u32(mask_at(mask_row(0u) + min(at, P.mask_size - 1u))) != 0u;
        }
    }
    return kept;
}

fn capped4(s: vec4<f32>) -> vec4<f32> {
    if (!CAPPED) { return s; }
    return vec4(
        soft_capped(s.x, P.cap, P.inv_cap), soft_capped(s.y, P.cap, P.inv_cap),
        soft_capped(s.z, P.cap, P.inv_cap), soft_capped(s.w, P.cap, P.inv_cap),
    );
}

fn logits_at(tile: Tile, kv_head: u32, position: i32) -> Logits {
    var result: Logits;
    var kept: array<vec4<bool>, G>;
    var is_seen = false;
    for (var g = 0u; g < G; g++) {
        result.s[g] = vec4(minus_inf());
        kept[g] = kept_at(g, position);
        is_seen = is_seen || any(kept[g]);
    }
    result.page = NO_PAGE;
    if (!is_seen) { return result; }
    result.page = page_of(tile.sequence, u32(position) / PAGE_SIZE);
    if (result.page == NO_PAGE) {
        refuse(BAD_PAGE);
        return result;
    }
    let cell = k_row(result.page) + K_FIRST + (u32(position) % PAGE_SIZE) * K_SLOT + kv_head * K_HEAD;
    let scores = scores_at(cell);
    var is_bad = key_is_bad();
    for (var g = 0u; g < G; g++) {
        var s = capped4(mul4(settle4(scores[g]), vec4(P.scale)));
        if (HAS_SLOPES) { s = add4(s, mul4(slopes4[g], vec4<f32>(vec4(position) - places[g]))); }
        let bits = bitcast<vec4<u32>>(s);
        // +Inf and NaN: beyond the largest number, and no -Inf
        let beyond = ((bits & vec4(0x7fffffffu)) >= vec4(0x7f800000u)) & (bits != vec4(0xff800000u));
        is_bad = is_bad || any(kept[g] & beyond);
        result.s[g] = select(vec4(minus_inf()), s, kept[g]);
    }
    if (is_bad) { refuse(BAD_SCORE); }
    return result;
}
