//: needs elementary
// erf and erfc of numbers that are not NaN.

// erfc of 1 < magnitude; +0 from 5.5 on.
fn erfc_tail(magnitude: f32) -> f32 {
    let z = min(magnitude, 5.5);
    var p = -1.265466607947019e-6;
    p = add(mul(p, z), 3.889390063704923e-5);
    p = add(mul(p, z), -0.0005389406578615308);
    p = add(mul(p, z), 0.004504317417740822);
    p = add(mul(p, z), -0.025748612359166145);
    p = add(mul(p, z), 0.108995221555233);
    p = add(mul(p, z), -0.367125004529953);
    p = add(mul(p, z), 1.1296759843826294);
    p = add(mul(p, z), -0.00019510684069246054);
    return select(0.0, exp_exact(sub(-mul(z, z), p)), magnitude < 5.5);
}

// erf of |x| <= 1.
fn erf_centre(x: f32) -> f32 {
    let z = min(max(x, -1.0), 1.0);
    let z2 = mul(z, z);
    var p = 7.889122935011983e-5;
    p = add(mul(p, z2), -0.0008020842215046287);
    p = add(mul(p, z2), 0.005189535673707724);
    p = add(mul(p, z2), -0.026854444295167923);
    p = add(mul(p, z2), 0.11283600330352783);
    p = add(mul(p, z2), -0.3761262595653534);
    p = add(mul(p, z2), 1.1283791065216064);
    return mul(z, p);
}

fn erf_exact(x: f32) -> f32 {
    let outer = bitcast<u32>(sub(1.0, erfc_tail(abs(x)))) | (bitcast<u32>(x) & 0x80000000u);
    return select(bitcast<f32>(outer), erf_centre(x), abs(x) <= 1.0);
}

fn erfc_exact(x: f32) -> f32 {
    let tail = erfc_tail(abs(x));
    let outer = select(tail, sub(2.0, tail), x < 0.0);
    return select(outer, sub(1.0, erf_centre(x)), abs(x) <= 1.0);
}
