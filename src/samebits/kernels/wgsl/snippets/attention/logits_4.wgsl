//: needs attention/logits
// Logits of all pairs from their scores.
fn each_logit(scores: Quads, position: i32) -> Logits {
    var found = Logits(none_of_quads(), false, false);
    found.s.a = logit(&found, scores.a, 0u, position);
    found.s.b = logit(&found, scores.b, 1u, position);
    found.s.c = logit(&found, scores.c, 2u, position);
    found.s.d = logit(&found, scores.d, 3u, position);
    return found;
}
