//: needs attention/pairs, attention/logits
// Logits of the position, and in `page` where its value is: NO_PAGE where no pair looks.
fn logits_at(tile: Tile, kv_head: u32, position: i32, page: ptr<function, u32>) -> Quads {
    *page = NO_PAGE;
    var scores = none_of_quads();
    var is_bad = false;
    if (position < tile.length) {
        *page = page_of(tile.sequence, u32(position) / PAGE_SIZE);
        if (*page != NO_PAGE) {
            scores = scores_at(k_row(*page) + K_FIRST + (u32(position) % PAGE_SIZE) * K_SLOT + kv_head * K_HEAD);
            is_bad = key_is_bad();
        }
    }
    let found = each_logit(scores, position);
    if (found.is_seen && *page == NO_PAGE) { refuse(BAD_PAGE); }
    if (found.is_seen && (is_bad || found.is_bad)) { refuse(BAD_SCORE); }
    *page = select(NO_PAGE, *page, found.is_seen);
    return found.s;
}
