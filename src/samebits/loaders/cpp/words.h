// How byte-level models cut a text into words: what the patterns of pre_tokenizers.py match, without a regex engine.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "char_classes.h"

namespace samebits {

// In the order of PATTERNS in pre_tokenizers.py.
enum class Pattern { gpt2, smollm, llama3, qwen2, qwen35 };
enum CharClass : uint8_t { other, letter, number, space };

// The class of every code point; marks are letters to some patterns.
class CharClasses {
public:
    explicit CharClasses(bool has_marks) : table_(0x110000, other) {
        for (CharRange r : LETTERS) fill(r, letter);
        if (has_marks)
            for (CharRange r : MARKS) fill(r, letter);
        for (CharRange r : NUMBERS) fill(r, number);
        for (CharRange r : SPACES) fill(r, space);
    }
    CharClass of(uint32_t code) const { return code < table_.size() ? CharClass(table_[code]) : other; }

private:
    void fill(CharRange r, CharClass c) { std::fill(table_.begin() + r.first, table_.begin() + r.last + 1, c); }

    std::vector<uint8_t> table_;
};

inline const CharClasses& char_classes(Pattern pattern) {
    static const CharClasses plain(false), with_marks(true);
    return pattern == Pattern::qwen35 ? with_marks : plain;
}

// Finds where words end in a stretch of UTF-8 that counts as a whole text. Offsets are bytes of `text`.
class WordCutter {
public:
    WordCutter(std::string_view text, size_t end, Pattern pattern) : text_(text), end_(end), pattern_(pattern) {}

    // Where the word that begins at `at` ends.
    size_t word_end(size_t at) const {
        if (size_t n = contraction(at)) return at + n;
        const Char first = read(at);
        const size_t after = at + first.size;
        const Char second = read(after);
        const bool is_strict = pattern_ == Pattern::gpt2 || pattern_ == Pattern::smollm;
        if (first.kind == letter) return run(at, letter);
        if (is_strict) {
            if (first.code == ' ' && after < end_ && second.kind != space) return run(after, second.kind);
            if (first.kind != space) return run(at, first.kind);
            return spaces_end(at);
        }
        if (first.kind != number && !is_newline(first.code) && after < end_ && second.kind == letter)
            return run(after, letter);
        if (first.kind == number) return run(at, number, pattern_ == Pattern::llama3 ? 3 : 1);
        if (first.kind == other) return newlines_end(run(at, other));
        if (first.code == ' ' && after < end_ && second.kind == other) return newlines_end(run(after, other));
        return line_end_or_spaces(at);
    }

    // Where the stretch that begins at `at` ends: one number, or all up to the next one.
    size_t stretch_end(size_t at) const {
        const Char first = read(at);
        at += first.size;
        if (first.kind == number) return at;
        while (at < end_) {
            const Char c = read(at);
            if (c.kind == number) break;
            at += c.size;
        }
        return at;
    }

private:
    struct Char {
        uint32_t code;
        size_t size;
        CharClass kind;
    };

    static bool is_newline(uint32_t code) { return code == '\r' || code == '\n'; }

    uint32_t byte(size_t at) const { return at < end_ ? uint8_t(text_[at]) : 0; }

    Char read(size_t at) const {
        const uint32_t lead = byte(at);
        uint32_t code = lead;
        size_t size = 1;
        if (lead >= 0xF0) {
            code = (lead & 7) << 18 | (byte(at + 1) & 63) << 12 | (byte(at + 2) & 63) << 6 | (byte(at + 3) & 63);
            size = 4;
        } else if (lead >= 0xE0) {
            code = (lead & 15) << 12 | (byte(at + 1) & 63) << 6 | (byte(at + 2) & 63);
            size = 3;
        } else if (lead >= 0xC0) {
            code = (lead & 31) << 6 | (byte(at + 1) & 63);
            size = 2;
        }
        return {code, std::min(size, end_ - std::min(at, end_)), classes_.of(code)};
    }

    size_t run(size_t at, CharClass kind, size_t max_chars = SIZE_MAX) const {
        for (; at < end_ && max_chars > 0; max_chars--) {
            const Char c = read(at);
            if (c.kind != kind) break;
            at += c.size;
        }
        return at;
    }

    size_t newlines_end(size_t at) const {
        while (at < end_ && is_newline(byte(at))) at++;
        return at;
    }

    // All spaces at the end of the text, else all but the last: that one goes with the word behind it.
    size_t spaces_end(size_t at) const {
        size_t last = at, stop = at;
        while (stop < end_) {
            const Char c = read(stop);
            if (c.kind != space) break;
            last = stop;
            stop += c.size;
        }
        return stop < end_ && last > at ? last : stop;
    }

    // Spaces up to the last line's end among them; without one as `spaces_end`.
    size_t line_end_or_spaces(size_t at) const {
        size_t line_end = 0;
        for (size_t stop = at; stop < end_;) {
            const Char c = read(stop);
            if (c.kind != space) break;
            stop += c.size;
            if (is_newline(c.code)) line_end = stop;
        }
        return line_end ? line_end : spaces_end(at);
    }

    // Bytes of 's, 't, 'm, 'd, 're, 've or 'll at `at`, else 0; capitals only where the pattern has them.
    size_t contraction(size_t at) const {
        if (byte(at) != '\'') return 0;
        const bool has_capitals = pattern_ != Pattern::gpt2 && pattern_ != Pattern::smollm;
        auto lower = [&](uint32_t c) { return has_capitals && c >= 'A' && c <= 'Z' ? c + 32 : c; };
        const uint32_t a = lower(byte(at + 1)), b = lower(byte(at + 2));
        if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
        return ((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
    }

    std::string_view text_;
    size_t end_;
    Pattern pattern_;
    const CharClasses& classes_ = char_classes(pattern_);
};

// Calls word(begin, end) for every word of the text, in order.
template <class Word>
void for_each_word(std::string_view text, Pattern pattern, Word word) {
    const WordCutter whole(text, text.size(), pattern);
    for (size_t begin = 0; begin < text.size();) {
        const size_t end = pattern == Pattern::smollm ? whole.stretch_end(begin) : text.size();
        const WordCutter cutter(text, end, pattern);
        while (begin < end) {
            const size_t stop = cutter.word_end(begin);
            word(begin, stop);
            begin = stop;
        }
    }
}

}  // namespace samebits
