//: needs rounding4, elementary, tanh, attention/pairs
// What pairs of a tile make of a score: scaled, capped, biased, masked; and its exponential.

fn minus_inf() -> f32 { return bitcast<f32>(0xff800000u | P.zero); }

struct Logits {
    s: Quads,  // -Inf where not kept
    is_seen: bool,  // whether any pair keeps the position
    is_bad: bool,
}

fn is_masked_out(row: u32, position: i32) -> bool {
    let at = row + u32(position);
    if (at >= P.mask_size) {
        refuse(BAD_MASK);
        return true;
    }
    return u32(mask_at(mask_row(0u) + at)) == 0u;
}

fn kept_at(g: u32, position: i32) -> vec4<bool> {
    var kept = (vec4(position) >= lows[g]) & (vec4(position) <= highs[g]);
    if (HAS_MASK) {
        let rows = mask_rows[g];
        if (kept.x) { kept.x = !is_masked_out(rows.x, position); }
        if (kept.y) { kept.y = !is_masked_out(rows.y, position); }
        if (kept.z) { kept.z = !is_masked_out(rows.z, position); }
        if (kept.w) { kept.w = !is_masked_out(rows.w, position); }
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

fn logit(found: ptr<function, Logits>, score: vec4<f32>, g: u32, position: i32) -> vec4<f32> {
    let kept = kept_at(g, position);
    var s = capped4(mul4(settle4(score), vec4(P.scale)));
    if (HAS_SLOPES) { s = add4(s, mul4(slopes4[g], vec4<f32>(vec4(position) - places[g]))); }
    let bits = bitcast<vec4<u32>>(s);
    // +Inf and NaN: beyond the largest number, and no -Inf
    let beyond = ((bits & vec4(0x7fffffffu)) >= vec4(0x7f800000u)) & (bits != vec4(0xff800000u));
    (*found).is_seen = (*found).is_seen || any(kept);
    (*found).is_bad = (*found).is_bad || any(kept & beyond);
    return select(vec4(minus_inf()), s, kept);
}

// e^(s - m), +0 where s is -Inf.
fn exponential(s: vec4<f32>, m: vec4<f32>) -> vec4<f32> {
    let x = sub4(s, m);
    let p = vec4(exp_exact(x.x), exp_exact(x.y), exp_exact(x.z), exp_exact(x.w));
    return select(p, vec4<f32>(), bitcast<vec4<u32>>(s) == vec4(0xff800000u));
}
