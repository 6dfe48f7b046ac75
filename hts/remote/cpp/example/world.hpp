// The reference simulator of PROTOCOL.md: one replica, in whole numbers of 64 bits.

#pragma once

#include <cstddef>
#include <cstdint>
#include <hts/seat.hpp>
#include <vector>

constexpr std::uint64_t golden = 0x9E3779B97F4A7C15;
constexpr int longest = 20;

inline std::uint64_t mix(std::uint64_t x) {
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9;
    x ^= x >> 27;
    x *= 0x94D049BB133111EB;
    return x ^ (x >> 31);
}

/// What one replica shows, or several, one behind the other.
struct Shown {
    std::vector<std::uint8_t> picture;
    std::vector<float> values;

    hts::Observation fields() const { return {picture, values}; }
};

class World {
public:
    explicit World(std::size_t agents) : agents_(agents) {}

    void reset(std::uint64_t seed) {
        state_ = mix(seed + golden);
        age_ = 0;
    }

    /// One action for each agent.
    void step(const std::int64_t* action) {
        for (std::size_t agent = 0; agent < agents_; ++agent) {
            state_ = mix(state_ + golden * static_cast<std::uint64_t>(action[agent] + 1) + agent);
        }
        ++age_;
    }

    float reward(std::size_t agent) const {
        return static_cast<float>(mix(state_ + agent) >> 56) / 256 - 0.5F;
    }
    bool is_terminated() const { return (state_ & 31) == 0; }
    bool is_truncated() const { return age_ == longest; }

    void show(Shown& shown) const {
        for (std::size_t agent = 0; agent < agents_; ++agent) {
            for (std::uint64_t at = 0; at < 4; ++at) {
                const std::uint64_t word = mix(state_ + golden * (at + 1) + agent);
                shown.values.push_back(static_cast<float>(word >> 40) / (1 << 24));
                for (int bits = 0; at < 2 && bits < 64; bits += 8) {
                    shown.picture.push_back(static_cast<std::uint8_t>(word >> bits));
                }
            }
        }
    }

private:
    std::size_t agents_;
    std::uint64_t state_ = 0;
    int age_ = 0;
};

inline hts::Spaces spaces(std::size_t agents) {
    hts::Spaces spaces;
    spaces.observation = {{"picture", hts::Box{{2, 8}, hts::Type::uint8, 0.0, 255.0}},
                          {"values", hts::Box{{4}}}};
    spaces.action = hts::Discrete{3};
    spaces.agents = agents;
    return spaces;
}
