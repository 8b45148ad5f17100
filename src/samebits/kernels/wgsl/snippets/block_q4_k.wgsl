//: needs super_block
alias Head = SuperHead;

fn load_head(column: u32, row: u32, rows: u32) -> Head { return super_head(texel(column, row, rows)); }
fn next_block(head: Head) -> Head { return next_super(head); }
fn scales_of(head: Head) -> Scales { return super_scales(head); }
fn load_codes(head: Head, column: u32, block: u32, row: u32, rows: u32) -> Codes {
    return nibbles(texel(column + 1u + block, row, rows));
}
