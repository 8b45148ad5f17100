fn store_lse(row: u32, head: u32, value: f32) { lse[lse_row(row) + head] = value; }
