//: needs rounding4, float16
// Values in q8_0 or q4_0: a word is four or eight codes of one block. P is float16(p * d), times the integer code.
const COLUMNS = select(8u, 4u, V_Q8);  // of a word

fn weight_of(p: f32) -> f32 { return p; }

struct Values {
    columns: array<f32, COLUMNS>,
    scale: f32,
}

// The columns of a word of the value at a cell; +0 where there is none.
fn values_at(cell: u32, word: u32) -> Values {
    let per_block = 32u / COLUMNS;
    let is_there = cell != NO_PAGE && word < V_WORDS;
    let block = select(0u, cell + word / per_block, is_there);
    let bits = v[block * per_block + word % per_block];
    var values: Values;
    values.scale = select(0.0, bitcast<f32>(v[P.v_scales + block]), is_there);
    for (var c = 0u; c < COLUMNS; c++) {
        if (V_Q8) {
            values.columns[c] = f32(extractBits(bitcast<i32>(bits), c * 8u, 8u));
        } else {
            // bytes hold element j and j + 16: the low halves are the first four columns
            values.columns[c] = f32(i32(extractBits(bits, (c % 4u) * 8u + (c / 4u) * 4u, 4u)) - 8);
        }
    }
    if (!is_finite(values.scale)) { refuse(BAD_VALUE); }
    return values;
}

fn scaled(p: f32, scale: f32) -> f32 { return widen_f16(narrow_f16(mul(p, scale))); }

// P * v of four pairs: of a float16 and a code.
fn term(p: vec4<f32>, value: f32, values: Values) -> vec4<f32> {
    let d = values.scale;
    return exact4(vec4(scaled(p.x, d), scaled(p.y, d), scaled(p.z, d), scaled(p.w, d)) * value);
}

fn column_of(word: u32, c: u32) -> u32 {
    if (V_Q8) { return word * 4u + c; }
    return word / 4u * 32u + word % 4u * 4u + c % 4u + c / 4u * 16u;
}
