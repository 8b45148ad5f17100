//: needs rounding4, float16, bfloat16
// Values in f32, f16 or bf16: a word is one or two columns. P is rounded to their type.
const COLUMNS = select(2u, 1u, V_F32);  // of a word
const LARGEST_VALUE = select(select(0x5f00u, 0x7bffu, V_F16), 0x7f7fffffu, V_F32);

fn weight_of(p: f32) -> f32 {
    if (V_F32) { return p; }
    if (V_F16) { return widen_f16(narrow_f16(p)); }
    return widen_bf16(narrow_bf16(p));
}

fn widen_value(half: u32) -> f32 {
    if (V_F16) { return widen_f16(half); }
    return widen_bf16(half);
}

struct Values {
    columns: array<f32, 2>,  // the first COLUMNS of them
}

// The columns of a word of the value at a cell; +0 where there is none.
fn values_at(cell: u32, word: u32) -> Values {
    let is_there = cell != NO_PAGE && word < V_WORDS;
    let bits = select(0u, v[select(0u, cell + word, is_there)], is_there);
    var values: Values;
    if (V_F32) {
        if ((bits & 0x7fffffffu) > LARGEST_VALUE) { refuse(BAD_VALUE); }
        values.columns[0] = bitcast<f32>(bits);
    } else {
        if (max(bits & 0x7fffu, (bits >> 16u) & 0x7fffu) > LARGEST_VALUE) { refuse(BAD_VALUE); }
        values.columns[0] = widen_value(bits & 0xffffu);
        values.columns[1] = widen_value(bits >> 16u);
    }
    return values;
}

// P * v of four pairs.
fn term(weight: vec4<f32>, value: f32, values: Values) -> vec4<f32> {
    if (V_F32) { return mul4(weight, vec4(value)); }
    return exact4(weight * value);  // of 16-bit numbers
}

fn column_of(word: u32, c: u32) -> u32 { return word * COLUMNS + c; }
