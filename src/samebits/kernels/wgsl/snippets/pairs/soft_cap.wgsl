//: needs tanh
fn combined(a: f32, b: f32) -> f32 { return settle(soft_capped(a, P.cap, P.inv_cap)); }
