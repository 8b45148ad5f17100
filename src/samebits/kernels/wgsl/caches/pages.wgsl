// An invocation copies a unit of a page, or of a slot: a word, or a block with its scale.
fn copy_unit(from_unit: u32, into_unit: u32) {
    if (CODE_WORDS == 0u) {
        cache[into_unit] = cache[from_unit];
        return;
    }
    for (var word = 0u; word < CODE_WORDS; word++) {
        cache[into_unit * CODE_WORDS + word] = cache[from_unit * CODE_WORDS + word];
    }
    cache[P.scales + into_unit] = cache[P.scales + from_unit];
}

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = linear_group(group, groups) * 64u + lane;
    if (i >= P.count) { return; }
    let source = i32(sources_at(sources_row(i / P.units)));
    let target_page = i32(targets_at(targets_row(i / P.units)));
    if (source < 0 || target_page < 0 || source >= i32(P.num_pages) || target_page >= i32(P.num_pages)) {
        if (source != -1 || target_page != -1) { refuse(NOT_THERE); }  // both -1: padding
        return;
    }
    let unit = i % P.units;
    copy_unit(cache_row(u32(source)) + unit, cache_row(u32(target_page)) + unit);
}
