// A simulator with every kind of space, two rows and two agents, that makes mistakes first:
// every_space ADDRESS PATIENCE. It shows the actions that it was given.

#include <hts/seat.hpp>
#include <iostream>
#include <string>
#include <vector>

namespace {

hts::Offer offer() {
    hts::Offer offer;
    using Each = std::vector<double>;
    offer.spaces.observation = {
        {"flag", hts::Box{{2}, hts::Type::boolean, 0.0, 1.0}},
        {"half", hts::Box{{}, hts::Type::float16}},
        {"deep", hts::Box{{2, 1}, hts::Type::float64, Each{-1, 0}, Each{1, 2}}},
        {"large", hts::Box{{1}, hts::Type::uint64, 0.0, 1e19}},
        {"one", hts::Discrete{5}},
        {"several", hts::MultiDiscrete{{2, 3}}},
    };
    offer.spaces.action = hts::Box{{2}, hts::Type::float32, -1.0, 1.0};
    offer.spaces.agents = 2;
    offer.rows = 2;
    offer.replayable = false;
    return offer;
}

struct Shown {
    std::size_t places; // rows times agents
    std::vector<double> deep;

    std::vector<std::uint8_t> flag = std::vector<std::uint8_t>(2 * places, 1);
    std::vector<std::uint16_t> half = std::vector<std::uint16_t>(places, 0x3c00);
    std::vector<std::uint64_t> large = std::vector<std::uint64_t>(places, 0xfedcba9876543210);
    std::vector<std::int64_t> one = std::vector<std::int64_t>(places, 4);
    std::vector<std::int64_t> several = {};

    explicit Shown(std::vector<double> deep_) : places(deep_.size() / 2), deep(std::move(deep_)) {
        for (std::size_t at = 0; at < places; ++at) several.insert(several.end(), {1, 2});
    }

    hts::Observation fields() const {
        const hts::Numbers flags(hts::Type::boolean, flag.data(), flag.size());
        return {flags, half, deep, large, one, several};
    }
};

/// The mistakes that the client has not noticed.
template <class Call>
int missed(Call call) {
    try {
        call();
    } catch (const hts::WrongShape&) {
        return 0;
    }
    return 1;
}

int play(const std::string& address, double patience) {
    hts::Dial dial;
    dial.patience = patience;
    hts::OwnSeat seat(address, offer(), dial);
    const hts::Action* action = nullptr;
    int errors = 0;
    while (!seat.over()) {
        if (action == nullptr) {
            Shown shown(std::vector<double>(4 * seat.held().rows().size(), 0.5)), wrong = shown;
            wrong.one[0] = 5;
            errors += missed([&] { seat.reset(wrong.fields()); });
            errors += missed([&] { seat.reset(1.0F); });
            action = seat.reset(shown.fields());
        } else {
            const Shown shown({action->numbers.begin(), action->numbers.end()});
            Shown wrong = shown;
            wrong.deep[0] = 1 / (shown.deep[0] - shown.deep[0]);
            errors += missed([&] { seat.step(wrong.fields(), std::vector<float>{0, 0, 0, 0}); });
            errors += missed([&] { seat.step(shown.fields(), 1.0); });
            const std::vector<bool> terminated{true, false}, truncated{false, true};
            action = seat.step(shown.fields(), std::vector<double>{0.25, 0.75, -1, -2}, terminated,
                               truncated, hts::RowFacts{{1, {{"score", 1.5}}}});
        }
    }
    return errors;
}

} // namespace

int main(int, char** words) try {
    return play(words[1], std::stod(words[2])) == 0 ? 0 : 5;
} catch (const hts::Refused& refused) {
    std::cerr << refused.what();
    return 3;
} catch (const hts::TimedOut& error) {
    std::cerr << error.what();
    return 4;
}
