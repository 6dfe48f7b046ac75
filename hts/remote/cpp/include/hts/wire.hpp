// The messages between a run and the simulators that dial in: bytes out, checked values in.
//
// A message is a head and, behind it, one raw frame for each array. The head is a msgpack array:
// the kind of the message, then its values. PROTOCOL.md, two folders above, says it all. Nothing
// is looked at that is not exactly as agreed: `read` gives nothing for such a message.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <msgpack.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "spaces.hpp"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "frames are little-endian, and so has to be the machine"
#endif
static_assert(std::numeric_limits<double>::is_iec559, "numbers are those of IEEE 754");

namespace hts {

/// What is known about an episode that ended: numbers with names.
using Facts = std::map<std::string, double>;
/// The same for each row of a seat with several.
using RowFacts = std::map<std::size_t, Facts>;

namespace wire {

using Bytes = std::string;
using Frames = std::vector<Bytes>;

inline constexpr int protocol = 1;
inline constexpr std::size_t head_limit = 1 << 20;
inline constexpr std::size_t text_limit = 4096;
inline constexpr std::size_t name_limit = 64;
inline constexpr std::uint8_t terminated = 1, truncated = 2;

// --- what a simulator says ----------------------------------------------------------------------

using Packer = msgpack::packer<msgpack::sbuffer>;

/// A head that is being written.
struct Head {
    msgpack::sbuffer buffer;
    Packer packer{buffer};

    Head(const char* kind, std::uint32_t values) {
        packer.pack_array(values + 1);
        packer.pack(kind);
    }
    Head(const Head&) = delete;
    Head& operator=(const Head&) = delete;

    Bytes bytes() const { return Bytes(buffer.data(), buffer.size()); }
};

inline std::uint32_t length(std::size_t count) { return static_cast<std::uint32_t>(count); }

/// Nested lists of a box's shape, from `at` on.
inline void pack_nested(Packer& packer, const Box& box, const double*& at, std::size_t axis) {
    if (axis == box.shape.size()) {
        packer.pack(*at++);
        return;
    }
    packer.pack_array(length(box.shape[axis]));
    for (std::size_t each = 0; each < box.shape[axis]; ++each) {
        pack_nested(packer, box, at, axis + 1);
    }
}

inline void pack_bound(Packer& packer, const Box& box, const Bound& bound) {
    if (bound.single) {
        packer.pack(bound.values.front());
    } else {
        const double* at = bound.values.data();
        pack_nested(packer, box, at, 0);
    }
}

inline void pack_space(Packer& packer, const Space& space) {
    if (const auto* box = std::get_if<Box>(&space)) {
        packer.pack_array(5);
        packer.pack("box");
        packer.pack(box->shape);
        packer.pack(name_of(box->type));
        pack_bound(packer, *box, box->low);
        pack_bound(packer, *box, box->high);
    } else if (const auto* one = std::get_if<Discrete>(&space)) {
        packer.pack_array(2);
        packer.pack("discrete");
        packer.pack(one->n);
    } else {
        packer.pack_array(2);
        packer.pack("multidiscrete");
        packer.pack(std::get<MultiDiscrete>(space).n);
    }
}

inline void pack_spaces(Packer& packer, const Spaces& spaces) {
    packer.pack_map(3);
    packer.pack("observation");
    packer.pack_array(length(spaces.observation.size()));
    for (const auto& [name, space] : spaces.observation) {
        packer.pack_array(2);
        packer.pack(name);
        pack_space(packer, space);
    }
    packer.pack("action");
    pack_space(packer, spaces.action);
    packer.pack("agents");
    packer.pack(spaces.agents);
}

using Turns = std::vector<std::pair<std::int64_t, std::int64_t>>; // seat and turn

inline void pack_turns(Packer& packer, const Turns& turns) {
    packer.pack_array(length(turns.size()));
    for (const auto& [seat, turn] : turns) {
        packer.pack_array(2);
        packer.pack(seat);
        packer.pack(turn);
    }
}

inline Frames hello(const Offer& offer, const Bytes& session, const std::string& run,
                    const Turns& held) {
    Head head("hello", 1);
    Packer& packer = head.packer;
    packer.pack_map(9);
    packer.pack("protocol");
    packer.pack(protocol);
    packer.pack("name");
    packer.pack(offer.name);
    packer.pack("session");
    packer.pack_bin(length(session.size()));
    packer.pack_bin_body(session.data(), length(session.size()));
    packer.pack("run");
    packer.pack(run);
    packer.pack("seats");
    packer.pack(offer.seats);
    packer.pack("rows");
    packer.pack(offer.rows);
    packer.pack("replayable");
    packer.pack(offer.replayable);
    packer.pack("spaces");
    pack_spaces(packer, offer.spaces);
    packer.pack("held");
    pack_turns(packer, held);
    return {head.bytes()};
}

inline Frames ping(const Turns& waiting) {
    Head head("ping", 1);
    pack_turns(head.packer, waiting);
    return {head.bytes()};
}

inline Frames fail(std::int64_t seat, const std::string& why) {
    Head head("fail", 2);
    head.packer.pack(seat);
    head.packer.pack(why);
    return {head.bytes()};
}

inline Frames bye() { return {Head("bye", 0).bytes()}; }

/// Where a seat stands; the frames are those of PROTOCOL.md, as bytes already.
struct Stand {
    std::vector<float> reward;
    std::vector<std::uint8_t> ends;
    std::vector<Bytes> observation;
    std::vector<Bytes> last; // observations of rows that were truncated, if there are any
    RowFacts facts;
};

template <class T>
Bytes raw(const std::vector<T>& numbers) {
    return Bytes(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T));
}

inline Frames stand(std::int64_t seat, std::int64_t turn, Stand stand) {
    Head head("stand", 3);
    head.packer.pack(seat);
    head.packer.pack(turn);
    head.packer.pack(stand.facts);
    Frames frames{head.bytes(), raw(stand.reward), raw(stand.ends)};
    for (std::vector<Bytes>* each : {&stand.observation, &stand.last}) {
        std::move(each->begin(), each->end(), std::back_inserter(frames));
    }
    return frames;
}

// --- what a run says ----------------------------------------------------------------------------

struct Welcome {
    std::string run;
};
struct Take {
    std::int64_t seat, first, rows;
    std::uint64_t build_seed;
};
struct Act {
    std::int64_t seat, turn;
    std::vector<std::size_t> begins; // in order, each once
    Bytes action, seeds;             // not checked yet: their sizes follow from the seat
};
struct Again {
    std::int64_t seat, turn;
};
struct Drop {
    std::int64_t seat;
};
struct Who {};
struct Here {};
struct Refused {
    std::string why;
};
struct Over {};

using Message = std::variant<Welcome, Take, Act, Again, Drop, Who, Here, Refused, Over>;

/// Text that is fit for a terminal: no control characters.
inline std::string told(std::string text) {
    for (char& each : text) {
        const auto code = static_cast<unsigned char>(each);
        if ((code < 0x20 && each != '\n') || code == 0x7f) each = '?';
    }
    return text;
}

/// The values of a head, one after the other, each of the type that is asked for.
class Values {
public:
    explicit Values(const msgpack::object& head) {
        good_ = head.type == msgpack::type::ARRAY && head.via.array.size >= 1;
        if (good_) list_ = head.via.array;
    }

    std::string text() {
        const msgpack::object* value = next(msgpack::type::STR);
        if (value == nullptr) return "";
        return checked(std::string(value->via.str.ptr, value->via.str.size));
    }

    /// Seats, turns and rows are counted from 0.
    std::int64_t whole() { return whole(next()); }

    std::uint64_t eight_bytes() {
        const msgpack::object* value = next(msgpack::type::BIN);
        std::uint64_t number = 0;
        good_ = good_ && value->via.bin.size == sizeof number;
        if (good_) std::memcpy(&number, value->via.bin.ptr, sizeof number);
        return number;
    }

    std::vector<std::size_t> rows() {
        std::vector<std::size_t> found;
        const msgpack::object* value = next(msgpack::type::ARRAY);
        for (std::size_t at = 0; good_ && at < value->via.array.size; ++at) {
            found.push_back(static_cast<std::size_t>(whole(&value->via.array.ptr[at])));
        }
        std::sort(found.begin(), found.end());
        found.erase(std::unique(found.begin(), found.end()), found.end());
        return found;
    }

    /// A welcome's map: the run's name, where the protocol is this one.
    std::string run() {
        const msgpack::object* value = next(msgpack::type::MAP);
        std::optional<std::string> run;
        bool same = false;
        for (std::size_t at = 0; good_ && at < value->via.map.size; ++at) {
            const msgpack::object_kv& pair = value->via.map.ptr[at];
            if (is(pair.key, "protocol")) same = whole(&pair.val) == protocol;
            if (is(pair.key, "run") && pair.val.type == msgpack::type::STR) {
                run = std::string(pair.val.via.str.ptr, pair.val.via.str.size);
            }
        }
        good_ = good_ && same && run.has_value();
        return good_ ? *run : "";
    }

    /// Every value was of the type that was asked for, and there is no other.
    bool are_all() const { return good_ && at_ == list_.size; }

private:
    static bool is(const msgpack::object& value, const std::string& text) {
        return value.type == msgpack::type::STR &&
               text.compare(0, text.npos, value.via.str.ptr, value.via.str.size) == 0;
    }

    const msgpack::object* next() {
        good_ = good_ && at_ < list_.size;
        return good_ ? &list_.ptr[at_++] : nullptr;
    }

    const msgpack::object* next(msgpack::type::object_type type) {
        const msgpack::object* value = next();
        good_ = good_ && value->type == type;
        return good_ ? value : nullptr;
    }

    std::int64_t whole(const msgpack::object* value) {
        constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        good_ = good_ && value->type == msgpack::type::POSITIVE_INTEGER && value->via.u64 <= most;
        return good_ ? static_cast<std::int64_t>(value->via.u64) : 0;
    }

    std::string checked(std::string text) {
        const auto begins_character = [](char each) { return (each & 0xc0) != 0x80; };
        const auto characters = std::count_if(text.begin(), text.end(), begins_character);
        good_ = good_ && static_cast<std::size_t>(characters) <= text_limit;
        return text;
    }

    msgpack::object_array list_{};
    std::uint32_t at_ = 0;
    bool good_ = false;
};

/// What a head says, and the frames behind it; nothing where it is not as agreed.
inline std::optional<Message> message(const msgpack::object& head, const Frames& frames) {
    Values values(head);
    const std::string kind = values.text();
    std::optional<Message> found;
    // Values are asked for in the order of the braces: C++ promises that.
    if (kind == "act" && frames.size() == 3) {
        found = Act{values.whole(), values.whole(), values.rows(), frames[1], frames[2]};
    } else if (frames.size() != 1) {
        return std::nullopt;
    } else if (kind == "welcome") {
        found = Welcome{values.run()};
    } else if (kind == "take") {
        found = Take{values.whole(), values.whole(), values.whole(), values.eight_bytes()};
    } else if (kind == "again") {
        found = Again{values.whole(), values.whole()};
    } else if (kind == "drop") {
        found = Drop{values.whole()};
    } else if (kind == "who") {
        found = Who{};
    } else if (kind == "here") {
        found = Here{};
    } else if (kind == "refused") {
        found = Refused{told(values.text())};
    } else if (kind == "over") {
        found = Over{};
    }
    return values.are_all() ? found : std::nullopt;
}

/// A whole message; nothing where it is not as agreed. `rows`: of a seat.
inline std::optional<Message> read(const Frames& frames, std::size_t rows) {
    if (frames.empty() || frames[0].size() > head_limit) return std::nullopt;
    // Lists, maps, bytes of a text, bytes, bytes of an extension, levels: nothing that is read
    // asks for more memory than the largest valid message.
    const msgpack::unpack_limit limit(rows + 8, 16, 4 * text_limit, 64, 0, 4);
    try {
        std::size_t end = 0;
        const msgpack::object_handle head =
            msgpack::unpack(frames[0].data(), frames[0].size(), end, nullptr, nullptr, limit);
        if (end != frames[0].size()) return std::nullopt;
        return message(head.get(), frames);
    } catch (const msgpack::unpack_error&) {
        return std::nullopt;
    }
}

} // namespace wire
} // namespace hts
