// Text to tokens for vocabularies from GGUF files, without the interpreter's lock; and such files' many strings.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "merging.h"
#include "specials.h"
#include "strings.h"
#include "tables.h"
#include "words.h"

namespace nb = nanobind;
using namespace samebits;

namespace {

template <class T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::string_view view(const nb::bytes& text) {
    if (text.size() >= INT32_MAX) throw std::invalid_argument("text: 2 GiB or more");
    return {text.c_str(), text.size()};
}

std::unique_ptr<TextTable> text_table(const nb::bytes& data, const Array<uint32_t>& ends) {
    return std::make_unique<TextTable>(view(data), ends.data(), ends.size());
}

nb::bytes as_bytes(const std::vector<int32_t>& ids) { return nb::bytes(ids.data(), ids.size() * sizeof(int32_t)); }

// The strings of a GGUF file's array: (text, lengths as int64, position behind them), or None where they are wrong.
nb::object strings(Array<uint8_t> data, size_t position, size_t end, size_t count, uint64_t max_bytes) {
    Strings found;
    if (end > data.size() || !read_strings(data.data(), position, end, count, max_bytes, found)) return nb::none();
    const nb::bytes lengths(found.lengths.data(), found.lengths.size() * sizeof(int64_t));
    return nb::make_tuple(nb::bytes(found.text.data(), found.text.size()), lengths, found.position);
}

// Tokens by their texts.
class TokenTable {
public:
    TokenTable(const nb::bytes& data, Array<uint32_t> ends) : table_(view(data), ends.data(), ends.size()) {}

    nb::bytes find(const nb::bytes& data, Array<uint32_t> ends) const {
        std::vector<int32_t> ids;
        for_each(data, ends, [&](std::string_view text) { ids.push_back(table_.find(text)); });
        return as_bytes(ids);
    }

    // Left, right and join of every "left right"; a space that comes first is of the left one.
    nb::bytes find_merges(const nb::bytes& data, Array<uint32_t> ends) const {
        std::vector<int32_t> ids;
        std::string join;
        for_each(data, ends, [&](std::string_view text) {
            const size_t cut = text.find(' ', 1);
            if (cut == std::string_view::npos) return ids.insert(ids.end(), 3, UNKNOWN), void();
            const std::string_view left = text.substr(0, cut), right = text.substr(cut + 1);
            join.assign(left).append(right);
            for (std::string_view part : {left, right, std::string_view(join)}) ids.push_back(table_.find(part));
        });
        return as_bytes(ids);
    }

private:
    template <class Take>
    static void for_each(const nb::bytes& data, const Array<uint32_t>& ends, Take take) {
        const std::string_view bytes = view(data);
        uint32_t begin = 0;
        for (size_t i = 0; i < ends.size(); begin = ends(i++)) {
            if (ends(i) < begin || ends(i) > bytes.size()) throw std::invalid_argument("texts: an end out of range");
            take(bytes.substr(begin, ends(i) - begin));
        }
    }

    TextTable table_;
};

// Byte-level BPE by rank.
class RankEncoder {
public:
    RankEncoder(int pattern, Array<int32_t> byte_ids, Array<int32_t> merges, int32_t num_tokens)
        : pattern_(Pattern(pattern)), pairs_(merges.data(), merges.size() / 3, num_tokens) {
        if (pattern < 0 || pattern > int(Pattern::qwen35)) throw std::invalid_argument("pattern: none of ours");
        if (byte_ids.size() != 256) throw std::invalid_argument("byte_ids: not 256");
        for (size_t i = 0; i < 256; i++) {
            byte_ids_[i] = byte_ids(i);
            if (byte_ids_[i] >= num_tokens) throw std::invalid_argument("byte_ids: an id out of range");
        }
    }

    // From now on a word that is a token is taken whole.
    void take_whole_words(const nb::bytes& data, Array<uint32_t> ends) { words_ = text_table(data, ends); }

    nb::bytes encode(const nb::bytes& text) const {
        const std::string_view bytes = view(text);
        std::vector<int32_t> ids;
        {
            nb::gil_scoped_release released;
            Symbols symbols;
            MergeQueue queue(pairs_.num_ranks());
            for_each_word(bytes, pattern_, [&](size_t begin, size_t end) {
                encode_word(bytes.substr(begin, end - begin), symbols, queue, ids);
            });
        }
        return as_bytes(ids);
    }

private:
    void encode_word(std::string_view word, Symbols& symbols, MergeQueue& queue,
                     std::vector<int32_t>& ids) const {
        if (words_)
            if (const int32_t whole = words_->find(word); whole != UNKNOWN) return ids.push_back(whole);
        symbols.clear(word.size());
        for (uint32_t i = 0; i < word.size(); i++) symbols.add(i, 1, byte_ids_[uint8_t(word[i])]);
        merge(symbols, queue,
              [&](uint32_t left, uint32_t right, uint32_t) { return pairs_.find(symbols.token(left), symbols.token(right)); });
        for (uint32_t at = 0; at < symbols.end(); at = symbols.next(at))
            if (symbols.token(at) != UNKNOWN) ids.push_back(symbols.token(at));
    }

    Pattern pattern_;
    int32_t byte_ids_[256];
    PairTable pairs_;
    std::unique_ptr<TextTable> words_;
};

constexpr std::string_view SPACE_MARK = "\xE2\x96\x81";  // what a space is to SentencePiece

// SentencePiece's BPE by score. Spaces are plain ones, in tokens too.
class ScoreEncoder {
public:
    // `ranks`: by token, the best score's is 0 and equal scores share one.
    ScoreEncoder(const nb::bytes& data, Array<uint32_t> ends, Array<uint32_t> ranks, Array<int32_t> byte_ids)
        : table_(view(data), ends.data(), ends.size()), ranks_(ranks.data(), ranks.data() + ranks.size()) {
        if (ranks.size() != ends.size() || byte_ids.size() != 256) throw std::invalid_argument("sizes that differ");
        for (size_t i = 0; i < 256; i++) byte_ids_[i] = byte_ids(i);
        for (uint32_t rank : ranks_) num_ranks_ = std::max(num_ranks_, size_t(rank) + 1);
    }

    // The ids, -1 for each byte that has none.
    nb::bytes encode(const nb::bytes& text) const {
        const std::string_view bytes = view(text);
        std::vector<int32_t> ids;
        {
            nb::gil_scoped_release released;
            encode_text(bytes, ids);
        }
        return as_bytes(ids);
    }

private:
    void encode_text(std::string_view text, std::vector<int32_t>& ids) const {
        Symbols symbols;
        MergeQueue queue(num_ranks_);
        symbols.clear(text.size());
        for (size_t begin = 0, end; begin < text.size(); begin = end) {
            for (end = begin + 1; end < text.size() && (text[end] & 0xC0) == 0x80;) end++;
            symbols.add(uint32_t(begin), uint32_t(end - begin), table_.find(text.substr(begin, end - begin)));
        }
        merge(symbols, queue, [&](uint32_t left, uint32_t, uint32_t after) {
            const int32_t id = table_.find(text.substr(left, after - left));
            return id == UNKNOWN ? Join{} : Join{ranks_[size_t(id)], id};
        });
        for (uint32_t at = 0; at < symbols.end(); at = symbols.next(at)) {
            if (symbols.token(at) != UNKNOWN) {
                ids.push_back(symbols.token(at));
            } else {
                const std::string_view symbol = text.substr(at, symbols.next(at) - at);
                for (char byte : symbol == " " ? SPACE_MARK : symbol) ids.push_back(byte_ids_[uint8_t(byte)]);
            }
        }
    }

    TextTable table_;
    std::vector<uint32_t> ranks_;
    size_t num_ranks_ = 0;
    int32_t byte_ids_[256];
};

// Special tokens, which are cut out of a text before it is encoded.
class Specials {
public:
    // Texts in the order in which they are cut out, and their ids.
    Specials(const nb::bytes& data, Array<uint32_t> ends, Array<int32_t> ids)
        : cutter_(checked(data, ends, ids), ends.data(), ids.data(), ids.size()) {}

    // Begin, end and token of every part, three int32 each.
    nb::bytes cut(const nb::bytes& text) const {
        const std::string_view bytes = view(text);
        std::vector<Part> parts;
        {
            nb::gil_scoped_release released;
            parts = cutter_.cut(bytes);
        }
        return nb::bytes(parts.data(), parts.size() * sizeof(Part));
    }

private:
    static std::string_view checked(const nb::bytes& data, const Array<uint32_t>& ends, const Array<int32_t>& ids) {
        if (ids.size() != ends.size()) throw std::invalid_argument("sizes that differ");
        uint32_t begin = 0;
        for (size_t i = 0; i < ends.size(); begin = ends(i++))
            if (ends(i) <= begin || ends(i) > data.size()) throw std::invalid_argument("texts: an end out of range");
        return view(data);
    }

    SpecialCutter cutter_;
};

}  // namespace

NB_MODULE(_encoding, m) {
    m.def("strings", &strings);
    nb::class_<TokenTable>(m, "TokenTable")
        .def(nb::init<const nb::bytes&, Array<uint32_t>>())
        .def("find", &TokenTable::find)
        .def("find_merges", &TokenTable::find_merges);
    nb::class_<RankEncoder>(m, "RankEncoder")
        .def(nb::init<int, Array<int32_t>, Array<int32_t>, int32_t>())
        .def("take_whole_words", &RankEncoder::take_whole_words)
        .def("encode", &RankEncoder::encode);
    nb::class_<ScoreEncoder>(m, "ScoreEncoder")
        .def(nb::init<const nb::bytes&, Array<uint32_t>, Array<uint32_t>, Array<int32_t>>())
        .def("encode", &ScoreEncoder::encode);
    nb::class_<Specials>(m, "Specials")
        .def(nb::init<const nb::bytes&, Array<uint32_t>, Array<int32_t>>())
        .def("cut", &Specials::cut);
}
