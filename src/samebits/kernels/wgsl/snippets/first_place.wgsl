//: needs ranking
// The first place in rank order that any invocation of a workgroup holds; lane 0 gets it.
var<workgroup> places: array<vec2<u32>, GROUP>;

fn first_of(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, ranks_before(b, a)); }

fn first_of_group(place: vec2<u32>, lane: u32) -> vec2<u32> {
    places[lane] = place;
    workgroupBarrier();
    var first = place;
    if (lane < 16u) {
        for (var i = lane; i < GROUP; i += 16u) { first = first_of(first, places[i]); }
        places[lane] = first;
    }
    workgroupBarrier();
    if (lane == 0u) {
        for (var i = 1u; i < 16u; i++) { first = first_of(first, places[i]); }
    }
    return first;
}
