//: needs texels, product_result
// An invocation takes ROWS rows of a group of 16 and TOKENS tokens, in the stream order: chains of 16 elements, 16 such
// runs in order inside a cut of 256, cuts in order. Products of 16-bit operands are exact; others are rounded.
fn product(a: f32, b: f32) -> f32 {
    if (IS_EXACT) { return exact(a * b); }
    return mul(a, b);
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
    for (var first = 0u; first < P.runs; first += 16u) {
        //: each r < ROWS
        //: each t < TOKENS
        var cut_$r_$t = 0.0;
        //: end
        //: end
        for (var i = first; i < min(first + 16u, P.runs); i++) {
            //: each r < ROWS
            //: each t < TOKENS
            var run_$r_$t = 0.0;
            //: end
            //: end
            for (var four = 0u; four < 4u; four++) {
                //: each t < TOKENS
                let x_$t = bitcast<vec4<f32>>(x[((token + $tu) * P.runs + i) * 4u + four]);
                //: end
                //: each r < ROWS
                let w_$r = four_elements(i * 4u + four, row + $ru * LANES, rows);
                //: each t < TOKENS
                run_$r_$t = add(run_$r_$t, product(x_$t.x, w_$r.x));
                run_$r_$t = add(run_$r_$t, product(x_$t.y, w_$r.y));
                run_$r_$t = add(run_$r_$t, product(x_$t.z, w_$r.z));
                run_$r_$t = add(run_$r_$t, product(x_$t.w, w_$r.w));
                //: end
                //: end
            }
            //: each r < ROWS
            //: each t < TOKENS
            cut_$r_$t = add(cut_$r_$t, run_$r_$t);
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
