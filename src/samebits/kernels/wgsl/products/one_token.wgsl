//: needs texels, product_result
// blocks.wgsl for one token, a row's blocks written out: where activations lie is a constant then, and the software driver
// loads them once for all lanes.
@compute @workgroup_size(GROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let number = group.x * GROUP + lane;
    let rows = number / LANES;
    let row = number % LANES;
    if (rows >= P.row_groups) { return; }
    //: each r < ROWS
    var total_$r = 0.0;
    var cut_$r = 0.0;
    //: end
    //: each s < STRETCHES
    //: each r < ROWS
    var head_$s_$r = load_head($su * STRETCH_TEXELS, row + $ru * LANES, rows);
    //: end
    //: each b < STRETCH
    if ($su * STRETCH + $bu < BLOCKS) {
        let at = ($su * STRETCH + $bu) * RECORD;
        let a = load_activations(at);
        let sa = bitcast<f32>(x[at + RECORD - 1u].x);
        let asum = bitcast<i32>(x[at + RECORD - 1u].y);
        //: each r < ROWS
        let codes_$r = load_codes(head_$s_$r, $su * STRETCH_TEXELS, $bu, row + $ru * LANES, rows);
        var low_$r = 0;
        var high_$r = 0;
        //: each i < 4
        let part_$r_$i = part_of(codes_$r, $iu);
        low_$r += low_part(part_$r_$i, a, $iu);
        high_$r += high_part(part_$r_$i, a, $iu);
        //: end
        cut_$r = add(cut_$r, term(whole(low_$r), whole(high_$r), scales_of(head_$s_$r), sa, asum));
        head_$s_$r = next_block(head_$s_$r);
        //: end
    }
    //: end
    if (($su + 1u) * STRETCH % 8u == 0u || ($su + 1u) * STRETCH >= BLOCKS) {
        //: each r < ROWS
        total_$r = add(total_$r, cut_$r);
        cut_$r = 0.0;
        //: end
    }
    //: end
    //: each r < ROWS
    give(0u, rows * 16u + row + $ru * LANES, total_$r);
    //: end
}
