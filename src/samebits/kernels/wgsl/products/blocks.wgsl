//: needs texels, product_result
// An invocation takes ROWS rows of a group of 16 and TOKENS tokens. Sums inside a block are exact integers; terms are
// added in order inside a cut of 8 blocks, cuts in order.
fn dot16(a: vec4<u32>, b: vec4<u32>) -> i32 {
    return (dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y)) + (dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w));
}

@compute @workgroup_size(GROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let number = group.x * GROUP + lane;
    let rows = number / LANES;
    let row = number % LANES;
    if (rows >= P.row_groups) { return; }
    let token = group.y * TOKENS;
    //: each r < ROWS
    //: each t < TOKENS
    var total_$r_$t = 0.0;
    //: end
    //: end
    for (var first = 0u; first < BLOCKS; first += 8u) {
        let column = first / 8u * CUT_TEXELS;
        //: each r < ROWS
        var head_$r = load_head(column, row + $ru * LANES, rows);
        //: each t < TOKENS
        var cut_$r_$t = 0.0;
        //: end
        //: end
        for (var block = 0u; block < min(8u, BLOCKS - first); block++) {
            //: each t < TOKENS
            let at_$t = ((token + $tu) * BLOCKS + first + block) * 3u;
            let low_$t = x[at_$t];
            let high_$t = x[at_$t + 1u];
            let sa_$t = bitcast<f32>(x[at_$t + 2u].x);
            let asum_$t = bitcast<i32>(x[at_$t + 2u].y);
            //: end
            //: each r < ROWS
            let codes_$r = load_codes(head_$r, column, block, row + $ru * LANES, rows);
            let scales_$r = scales_of(head_$r);
            head_$r = next_block(head_$r);
            //: each t < TOKENS
            let sum_low_$r_$t = dot16(codes_$r.low, low_$t);
            let sum_high_$r_$t = dot16(codes_$r.high, high_$t);
            cut_$r_$t = add(cut_$r_$t, term(sum_low_$r_$t, sum_high_$r_$t, scales_$r, sa_$t, asum_$t));
            //: end
            //: end
        }
        //: each r < ROWS
        //: each t < TOKENS
        total_$r_$t = add(total_$r_$t, cut_$r_$t);
        //: end
        //: end
    }
    //: each r < ROWS
    //: each t < TOKENS
    give(token + $tu, rows * 16u + row + $ru * LANES, total_$r_$t);
    //: end
    //: end
}
