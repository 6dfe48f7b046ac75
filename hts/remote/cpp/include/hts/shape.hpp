// What a simulator gives, checked against its own spaces, as the frames of the wire; and actions
// the other way round.

#pragma once

#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "spaces.hpp"
#include "wire.hpp"

namespace hts {

/// What a seat's agents do next: of one kind, flat in the order of rows and agents.
struct Action {
    std::vector<std::int64_t> choices; // of discrete and multidiscrete spaces
    std::vector<float> numbers;        // of boxes

    /// The only one, where there is one replica with one agent and a discrete space.
    std::int64_t choice() const { return choices.at(0); }
};

/// An offer that a run can make sense of; std::invalid_argument where it is none.
inline void check(const Offer& offer) {
    const auto need = [](bool given, const std::string& what) {
        if (!given) throw std::invalid_argument("an offer has " + what);
    };
    const auto is_name = [](const std::string& name) {
        return !name.empty() && name.size() <= wire::name_limit && wire::told(name) == name;
    };
    const Spaces& spaces = offer.spaces;
    need(is_name(offer.name), "a short name");
    need(offer.seats >= 1 && offer.rows >= 1, "one seat of one row at the least");
    need(spaces.agents >= 1, "one agent at the least");
    need(!spaces.observation.empty(), "an observation");
    std::set<std::string> names;
    const auto check_space = [&](const Space& space) {
        const Layout layout(space);
        for (const std::int64_t n : layout.choices) need(n >= 1, "something to choose from");
        const auto* box = std::get_if<Box>(&space);
        for (const Bound* bound : {box ? &box->low : nullptr, box ? &box->high : nullptr}) {
            const bool fits = !bound || bound->single || bound->values.size() == layout.numbers;
            need(fits, "one bound for a box, or one for each of its numbers");
        }
    };
    for (const auto& [name, space] : spaces.observation) {
        need(is_name(name), "short names for its fields");
        need(names.insert(name).second, "another name for each of its fields");
        check_space(space);
    }
    check_space(spaces.action);
    const Layout action(spaces.action);
    need(action.numbers >= 1, "actions of one number at the least");
    need(!action.choices.empty() || action.type == Type::float32, "actions of float32 or choices");
}

/// The arrays of one seat.
class Shape {
public:
    Shape(const Spaces& spaces, std::size_t rows)
        : rows_(rows), agents_(spaces.agents), action_(spaces.action) {
        for (const auto& [name, space] : spaces.observation) {
            names_.push_back(name);
            fields_.emplace_back(space);
        }
    }

    std::size_t rows() const { return rows_; }
    std::size_t agents() const { return agents_; }

    /// A frame for each field, of so many rows.
    std::vector<wire::Bytes> observation(const Observation& given, std::size_t rows) const {
        if (given.fields().size() != fields_.size()) {
            throw WrongShape("the observation has another number of fields than its spaces");
        }
        std::vector<wire::Bytes> frames;
        for (std::size_t field = 0; field < fields_.size(); ++field) {
            frames.push_back(frame(given.fields()[field], field, rows));
        }
        return frames;
    }

    /// A reward for each agent of each row, as exactly as it is given.
    std::vector<double> reward(const Numbers& given) const {
        if (given.count() != rows_ * agents_) {
            throw WrongShape("the reward is a number for each agent of each row");
        }
        std::vector<double> found(given.count());
        for (std::size_t at = 0; at < found.size(); ++at) {
            found[at] = number(given, at);
            if (!std::isfinite(static_cast<float>(found[at]))) {
                throw WrongShape("the reward is no finite float32");
            }
        }
        return found;
    }

    /// Both flags of each row as one number.
    std::vector<std::uint8_t> ends(const Flags& terminated, const Flags& truncated) const {
        for (const Flags* flags : {&terminated, &truncated}) {
            if (flags->count() != 1 && flags->count() != rows_) {
                throw WrongShape("terminated and truncated: one flag for each row");
            }
        }
        std::vector<std::uint8_t> found(rows_);
        for (std::size_t row = 0; row < rows_; ++row) {
            const int end = (terminated.of(row) ? wire::terminated : 0) +
                            (truncated.of(row) ? wire::truncated : 0);
            found[row] = static_cast<std::uint8_t>(end);
        }
        return found;
    }

    /// These rows of a frame of all rows, one behind the other.
    wire::Bytes some(const wire::Bytes& frame, const std::vector<std::size_t>& rows) const {
        const std::size_t size = frame.size() / rows_;
        wire::Bytes found;
        for (const std::size_t row : rows) found.append(frame, row * size, size);
        return found;
    }

    /// And the other way round: a frame of these rows, into a frame of all.
    void replace(wire::Bytes& frame, const std::vector<std::size_t>& rows,
                 const wire::Bytes& with) const {
        const std::size_t size = frame.size() / rows_;
        for (std::size_t at = 0; at < rows.size(); ++at) {
            frame.replace(rows[at] * size, size, with, at * size, size);
        }
    }

    /// The action in a frame; nothing where it is none of this space.
    std::optional<Action> action(const wire::Bytes& frame) const {
        const std::size_t count = rows_ * agents_ * action_.numbers;
        if (frame.size() != count * size_of(action_.type)) return std::nullopt;
        Action action;
        if (action_.choices.empty()) {
            action.numbers.resize(count);
            std::memcpy(action.numbers.data(), frame.data(), frame.size());
        } else {
            action.choices.resize(count);
            std::memcpy(action.choices.data(), frame.data(), frame.size());
            if (!are_choices(action.choices.data(), action_, count)) return std::nullopt;
        }
        return action;
    }

    /// The seeds in a frame; nothing where it has another size.
    std::optional<std::vector<std::uint64_t>> seeds(const wire::Bytes& frame) const {
        std::vector<std::uint64_t> found(rows_);
        if (frame.size() != rows_ * sizeof found[0]) return std::nullopt;
        std::memcpy(found.data(), frame.data(), frame.size());
        return found;
    }

private:
    wire::Bytes frame(const Numbers& given, std::size_t field, std::size_t rows) const {
        const Layout& layout = fields_[field];
        const std::string what = "observation '" + names_[field] + "'";
        const std::size_t count = rows * agents_ * layout.numbers;
        const bool is_half = layout.type == Type::float16 && given.type() == Type::uint16;
        if (given.type() != layout.type && !is_half) {
            throw WrongShape(what + " is of " + name_of(given.type()) + "; declared is " +
                             name_of(layout.type));
        }
        if (given.count() != count) {
            throw WrongShape(what + " has " + std::to_string(given.count()) +
                             " numbers; declared are " + std::to_string(count));
        }
        if (!are_numbers(given.data(), layout, count)) {
            throw WrongShape(what + " has a number that is not finite, or none of its choices");
        }
        return wire::Bytes(static_cast<const char*>(given.data()), count * size_of(layout.type));
    }

    static double number(const Numbers& given, std::size_t at) {
        if (given.type() == Type::float32) return static_cast<const float*>(given.data())[at];
        if (given.type() == Type::float64) return static_cast<const double*>(given.data())[at];
        if (given.type() == Type::int32) return static_cast<const std::int32_t*>(given.data())[at];
        throw WrongShape("the reward is of float, double or int");
    }

    static bool are_numbers(const void* data, const Layout& layout, std::size_t count) {
        switch (layout.type) {
        case Type::float16:
            return are_finite_halves(static_cast<const std::uint16_t*>(data), count);
        case Type::float32:
            return are_finite(static_cast<const float*>(data), count);
        case Type::float64:
            return are_finite(static_cast<const double*>(data), count);
        case Type::int64:
            return are_choices(static_cast<const std::int64_t*>(data), layout, count);
        default:
            return true;
        }
    }

    template <class T>
    static bool are_finite(const T* data, std::size_t count) {
        return std::all_of(data, data + count, [](T each) { return std::isfinite(each); });
    }

    static bool are_finite_halves(const std::uint16_t* data, std::size_t count) {
        const auto is_finite = [](std::uint16_t each) { return (each & 0x7c00) != 0x7c00; };
        return std::all_of(data, data + count, is_finite);
    }

    static bool are_choices(const std::int64_t* data, const Layout& layout, std::size_t count) {
        for (std::size_t at = 0; at < count && !layout.choices.empty(); ++at) {
            const std::int64_t n = layout.choices[at % layout.choices.size()];
            if (data[at] < 0 || data[at] >= n) return false;
        }
        return true;
    }

    std::size_t rows_, agents_;
    Layout action_;
    std::vector<std::string> names_;
    std::vector<Layout> fields_;
};

} // namespace hts
