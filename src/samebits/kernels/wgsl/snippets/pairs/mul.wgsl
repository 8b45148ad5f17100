fn combined(a: f32, b: f32) -> f32 { return settle(mul(a, b)); }
