//: needs super_block
struct Head { all: SuperHead, fifth: Words }

fn load_head(column: u32, row: u32, rows: u32) -> Head {
    let fifth = Words(texel(column + 1u, row, rows), texel(column + 2u, row, rows));
    return Head(super_head(texel(column, row, rows)), fifth);
}
fn next_block(head: Head) -> Head { return Head(next_super(head.all), next_word(head.fifth)); }
fn scales_of(head: Head) -> Scales { return super_scales(head.all); }
fn load_codes(head: Head, column: u32, block: u32, row: u32, rows: u32) -> Codes {
    return with_fifth_bits(nibbles(texel(column + 3u + block, row, rows)), head.fifth.a.x);
}
