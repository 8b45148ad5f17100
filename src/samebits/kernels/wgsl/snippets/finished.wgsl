//: needs opaque
// Some drivers end the loops of an invocation after 65,535 rounds in all, without a word: then a further loop, whose end
// no compiler knows, ends too early as well.
fn loops_were_ended() -> bool {
    var rounds = 0u;
    for (var i = 0u; i < opaque(2u); i++) { rounds++; }
    return rounds != 2u;
}
