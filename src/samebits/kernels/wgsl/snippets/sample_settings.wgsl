//: needs summaries, row_state, settings
// The settings of rows of `sample`, one by one, and what is refused of them, in the order of the reference. The
// row's state holds its top by then.
fn outside(value: f32, low: f32, high: f32) -> bool { return !is_finite(value) || value < low || value > high; }

fn seen_fault(seen: u32) -> u32 {
    if ((seen & SEEN_NAN) != 0u) { return NAN; }
    if ((seen & SEEN_PLUS_INF) != 0u || (seen & SEEN_FINITE) == 0u) { return NOT_FINITE; }
    if ((seen & SEEN_BAD_BIAS) != 0u) { return BIAS; }
    if (HAS_NOTES && (seen & SEEN_TOKEN) == 0u) { return NO_TOKEN; }
    return 0u;
}

fn setting_fault(row: u32, seen: u32) -> u32 {
    let temperature = temperature_of(row);
    if (outside(temperature, 0.0, 1e6)) { return TEMPERATURE; }
    if (top_k_at(top_k_row(row)) < 0) { return TOP_K; }
    if (outside(top_p_at(top_p_row(row)), 1.52587890625e-05, 1.0)) { return TOP_P; }
    if (outside(min_p_at(min_p_row(row)), 0.0, 1.0)) { return MIN_P; }
    if (HAS_REPETITION) {
        if (outside(repetition_at(repetition_row(row)), 1e-3, 1e3)) { return REPETITION; }
        if (outside(presence_at(presence_row(row)), -1e3, 1e3)) { return PRESENCE; }
        if (outside(frequency_at(frequency_row(row)), -1e3, 1e3)) { return FREQUENCY; }
    }
    if ((seen & SEEN_BAD_COUNT) != 0u) { return COUNTS; }
    if (sample_index_at(sample_index_row(row)) < 0) { return SAMPLE_INDEX; }
    if (position_at(position_row(row)) < 0) { return POSITION; }
    if (temperature > 0.0 && temperature < 1e-4) { return SMALL_TEMPERATURE; }
    return select(OVERFLOW, 0u, is_finite(state_value(row, TOP)));  // noise makes no finite value infinite
}

fn set_settings(row: u32, seen: u32) {
    let first = seen_fault(seen);
    let reason = select(setting_fault(row, seen), first, first != 0u);
    if (reason != 0u) { refuse(reason); }
    let is_drawn = temperature_of(row) > 0.0 && !is_plain(row) && reason == 0u;
    put(row, FACTOR, bitcast<u32>(factor_of(row)));
    put(row, IS_DRAWN, u32(is_drawn));
    put(row, NUM_KEPT, select(0u, num_kept(row), is_drawn));
    let top_p = top_p_at(top_p_row(row));
    let share = u32(sub(add(mul(top_p, 65536.0), 8388608.0), 8388608.0));
    put(row, SHARE, select(0u, share, is_drawn && top_p < 1.0));
    put(row, LEAST, bitcast<u32>(min_p_at(min_p_row(row))));
    let key = noise_key_of(row);
    put(row, NOISE_KEY, key.x);
    put(row, NOISE_KEY + 1u, key.y);
}
