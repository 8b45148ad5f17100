// Numbers that compilers do not know: a loop up to one stays a loop. Written out, rare work would be most of a shader,
// and drivers would compile it for seconds. It has a lane's number in it, since a driver may look up uniform words.
var<private> nothing: u32;  // 0; `main` says so with `nothing = lane & P.zero`

fn opaque(n: u32) -> u32 { return n + nothing; }
