//: needs attention/logits
// Logits of all pairs from their scores.
fn each_logit(scores: Quads, position: i32) -> Logits {
    var found = Logits(none_of_quads(), false, false);
    found.s.a = logit(&found, scores.a, 0u, position);
    return found;
}
