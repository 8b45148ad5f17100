// Threefry-2x32 with 20 rounds, and the Gumbel noise made of it (core/numerics/counter.py, ops/sampling.py).
#pragma once
#include "elementary.h"

namespace samebits::SAMEBITS_ISA {

struct Words {
    I first, second;
};

template <int N>
INLINE I rotate_left(I x) { return shift_left<N>(x) | shift_right_unsigned<32 - N>(x); }

template <int N>
INLINE void mix(Words& x) {
    x.first = x.first + x.second;
    x.second = rotate_left<N>(x.second) ^ x.first;
}

INLINE void add_key(Words& x, I first, I second, int32_t block) {
    x.first = x.first + first;
    x.second = x.second + second + set(block);
}

INLINE void mix_even(Words& x) {
    mix<13>(x);
    mix<15>(x);
    mix<26>(x);
    mix<6>(x);
}

INLINE void mix_odd(Words& x) {
    mix<17>(x);
    mix<29>(x);
    mix<16>(x);
    mix<24>(x);
}

INLINE Words threefry(const Words& key, Words x) {
    const I third = key.first ^ key.second ^ set(int32_t(0x1BD11BDA));
    add_key(x, key.first, key.second, 0);
    mix_even(x);
    add_key(x, key.second, third, 1);
    mix_odd(x);
    add_key(x, third, key.first, 2);
    mix_even(x);
    add_key(x, key.first, key.second, 3);
    mix_odd(x);
    add_key(x, key.second, third, 4);
    mix_even(x);
    add_key(x, third, key.first, 5);
    return x;
}

// -log(-log u) for 16 token ids; u is the top 23 bits of the id's word, at the middle of their step.
INLINE F gumbel(const Words& key, I token) {
    const I word = threefry(key, {token, set(0)}).first;
    const F u = (to_float(shift_right_unsigned<9>(word)) + set(0.5f)) * set(0x1p-23f);
    return zero() - log(zero() - log(u));
}

}  // namespace samebits::SAMEBITS_ISA
