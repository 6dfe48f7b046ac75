// What a simulator shows and takes, and views of the arrays that it holds already.
//
// Nothing is copied until it is said: `Numbers` and `Observation` are views, and are for being
// passed to a call. Arrays are flat, in C order: rows, then agents, then the shape of the space.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace hts {

/// What the simulator gave is not what its own spaces declare.
struct WrongShape : std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

/// Of each number of an array. A float16 is held as the 16 bits that it has.
enum class Type {
    boolean,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
    float16,
    float32,
    float64,
};

/// Its name in messages.
inline const char* name_of(Type type) {
    static constexpr std::array<const char*, 12> names{
        "bool",   "int8",   "int16",  "int32",   "int64",   "uint8",
        "uint16", "uint32", "uint64", "float16", "float32", "float64",
    };
    return names.at(static_cast<std::size_t>(type));
}

/// Its bytes.
inline std::size_t size_of(Type type) {
    static constexpr std::array<std::size_t, 12> sizes{1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8};
    return sizes.at(static_cast<std::size_t>(type));
}

/// The type of numbers that C++ calls T.
template <class T>
constexpr Type type_of() {
    static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8, "a number of up to 64 bits");
    if constexpr (std::is_same_v<T, bool>) {
        return Type::boolean;
    } else if constexpr (std::is_floating_point_v<T>) {
        return sizeof(T) == 4 ? Type::float32 : Type::float64;
    } else {
        constexpr int by_size = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
        constexpr Type first = std::is_signed_v<T> ? Type::int8 : Type::uint8;
        return static_cast<Type>(static_cast<int>(first) + by_size);
    }
}

// --- spaces -------------------------------------------------------------------------------------

/// One number for all elements of a box, or one for each of them.
struct Bound {
    std::vector<double> values;
    bool single = false;

    Bound(double all) : values{all}, single(true) {}
    Bound(std::vector<double> each) : values(std::move(each)) {}
};

/// An array of numbers.
struct Box {
    std::vector<std::size_t> shape;
    Type type = Type::float32;
    Bound low = -std::numeric_limits<double>::infinity();
    Bound high = std::numeric_limits<double>::infinity();
};

/// One whole number from 0 to n - 1, an int64.
struct Discrete {
    std::int64_t n;
};

/// Several of them.
struct MultiDiscrete {
    std::vector<std::int64_t> n;
};

using Space = std::variant<Box, Discrete, MultiDiscrete>;

/// What goes in and out of one agent, and how many agents a replica has.
struct Spaces {
    std::vector<std::pair<std::string, Space>> observation;
    Space action;
    std::size_t agents = 1;
};

/// What a simulator offers.
struct Offer {
    Spaces spaces;
    std::size_t seats = 1;    // how many it can hold
    std::size_t rows = 1;     // replicas of each, which are stepped together
    bool replayable = true;   // episodes begin at any time, and go the same way with the same seed
    std::string name = "c++"; // for people
};

/// An array of one space: its type, how many numbers each agent has, the choices of each of them.
struct Layout {
    Type type = Type::int64;
    std::size_t numbers = 1;
    std::vector<std::int64_t> choices; // none for a box

    explicit Layout(const Space& space) {
        if (const auto* box = std::get_if<Box>(&space)) {
            type = box->type;
            for (const std::size_t size : box->shape) numbers *= size;
        } else if (const auto* one = std::get_if<Discrete>(&space)) {
            choices = {one->n};
        } else {
            choices = std::get<MultiDiscrete>(space).n;
            numbers = choices.size();
        }
    }
};

// --- views --------------------------------------------------------------------------------------

/// Numbers that somebody else holds.
class Numbers {
    template <class T>
    using if_number = std::enable_if_t<std::is_arithmetic_v<T>, int>;

public:
    Numbers(Type type, const void* data, std::size_t count)
        : type_(type), data_(data), count_(count) {}

    template <class T>
    Numbers(const T* data, std::size_t count) : Numbers(type_of<T>(), data, count) {}

    template <class T, class Allocator, if_number<T> = 0>
    Numbers(const std::vector<T, Allocator>& vector) : Numbers(vector.data(), vector.size()) {}

    template <class T, std::size_t count, if_number<T> = 0>
    Numbers(const std::array<T, count>& array) : Numbers(array.data(), count) {}

    template <class T, std::size_t count, if_number<T> = 0>
    Numbers(const T (&array)[count]) : Numbers(array, count) {}

    template <class T, if_number<T> = 0>
    Numbers(const T& number) : Numbers(&number, 1) {}

    Type type() const { return type_; }
    const void* data() const { return data_; }
    std::size_t count() const { return count_; }

private:
    Type type_;
    const void* data_;
    std::size_t count_;
};

/// The fields of an observation, in the order of its spaces; or its only one.
class Observation {
public:
    Observation(std::initializer_list<Numbers> fields) : fields_(fields) {}
    Observation(std::vector<Numbers> fields) : fields_(std::move(fields)) {}

    template <class T, std::enable_if_t<std::is_constructible_v<Numbers, const T&>, int> = 0>
    Observation(const T& only) : fields_{Numbers(only)} {}

    const std::vector<Numbers>& fields() const { return fields_; }

private:
    std::vector<Numbers> fields_;
};

/// A flag for each row, or one for all of them.
class Flags {
public:
    Flags(bool all) : each_{all} {}
    Flags(std::vector<bool> each) : each_(std::move(each)) {}

    std::size_t count() const { return each_.size(); }
    bool of(std::size_t row) const { return each_[each_.size() == 1 ? 0 : row]; }

private:
    std::vector<bool> each_;
};

} // namespace hts
