//: needs texels, product_result
// An invocation takes ROWS rows of a group of 16 and TOKENS tokens. Sums inside a block are exact integers; terms are
// added in order inside a cut of 8 blocks, cuts in order.
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
    var cut_$r_$t = 0.0;
    //: end
    //: end
    for (var first = 0u; first < P.blocks; first += STRETCH) {
        let column = first / STRETCH * STRETCH_TEXELS;
        //: each r < ROWS
        var head_$r = load_head(column, row + $ru * LANES, rows);
        //: end
        for (var block = 0u; block < min(STRETCH, P.blocks - first); block++) {
            //: each t < TOKENS
            let at_$t = ((token + $tu) * P.blocks + first + block) * RECORD;
            let a_$t = load_activations(at_$t);
            let sa_$t = bitcast<f32>(x[at_$t + RECORD - 1u].x);
            let asum_$t = bitcast<i32>(x[at_$t + RECORD - 1u].y);
            //: end
            //: each r < ROWS
            let codes_$r = load_codes(head_$r, column, block, row + $ru * LANES, rows);
            let scales_$r = scales_of(head_$r);
            head_$r = next_block(head_$r);
            //: each t < TOKENS
            var low_$r_$t = 0;
            var high_$r_$t = 0;
            //: end
            //: each i < 4
            let part_$r_$i = part_of(codes_$r, $iu);
            //: each t < TOKENS
            low_$r_$t += low_part(part_$r_$i, a_$t, $iu);
            high_$r_$t += high_part(part_$r_$i, a_$t, $iu);
            //: end
            //: end
            //: each t < TOKENS
            let sum_$r_$t = term(whole(low_$r_$t), whole(high_$r_$t), scales_$r, sa_$t, asum_$t);
            cut_$r_$t = add(cut_$r_$t, sum_$r_$t);
            //: end
            //: end
        }
        if ((first + STRETCH) % 8u == 0u || first + STRETCH >= P.blocks) {
            //: each r < ROWS
            //: each t < TOKENS
            total_$r_$t = add(total_$r_$t, cut_$r_$t);
            cut_$r_$t = 0.0;
            //: end
            //: end
        }
    }
    //: each r < ROWS
    //: each t < TOKENS
    give(token + $tu, rows * 16u + row + $ru * LANES, total_$r_$t);
    //: end
    //: end
}
