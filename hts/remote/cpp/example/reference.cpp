// Any number of seats on one connection, each of any number of replicas that step together:
//
//     reference ADDRESS [--seats N] [--rows N] [--agents N] [--not-replayable] [--keys FOLDER]
//
// Exit code 0 when the run is over, 3 (and the sentence) where it refuses this simulator.

#include <hts/seat.hpp>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "world.hpp"

namespace {

/// The replicas of one seat.
class Worlds {
public:
    Worlds(std::size_t rows, std::size_t agents) : worlds_(rows, World(agents)), agents_(agents) {}

    void begin(hts::Seat& seat) {
        Shown shown;
        for (std::size_t at = 0; at < seat.rows().size(); ++at) {
            World& world = worlds_[seat.rows()[at]];
            world.reset(seat.seeds()[at]);
            world.show(shown);
        }
        seat.begin(shown.fields());
    }

    void step(hts::Seat& seat) {
        Shown shown;
        std::vector<float> reward;
        std::vector<bool> terminated, truncated;
        for (std::size_t row = 0; row < worlds_.size(); ++row) {
            World& world = worlds_[row];
            world.step(&seat.action()->choices[row * agents_]);
            world.show(shown);
            for (std::size_t agent = 0; agent < agents_; ++agent) {
                reward.push_back(world.reward(agent));
            }
            terminated.push_back(world.is_terminated());
            truncated.push_back(world.is_truncated());
        }
        seat.tell(shown.fields(), reward, terminated, truncated);
    }

private:
    std::vector<World> worlds_;
    std::size_t agents_;
};

struct Wishes {
    std::string address;
    hts::Offer offer;
    hts::Dial dial;
};

Wishes read(const std::vector<std::string>& words) {
    Wishes wishes;
    std::size_t agents = 1;
    for (std::size_t at = 0; at < words.size(); ++at) {
        const std::string& word = words[at];
        if (word == "--not-replayable") wishes.offer.replayable = false;
        else if (word == "--seats") wishes.offer.seats = std::stoul(words.at(++at));
        else if (word == "--rows") wishes.offer.rows = std::stoul(words.at(++at));
        else if (word == "--agents") agents = std::stoul(words.at(++at));
        else if (word == "--keys") wishes.dial.keys = hts::Keys::from_folder(words.at(++at));
        else if (wishes.address.empty() && word[0] != '-') wishes.address = word;
        else throw std::invalid_argument(word);
    }
    if (wishes.address.empty()) throw std::invalid_argument("one address, please");
    wishes.offer.spaces = spaces(agents);
    return wishes;
}

int run(const Wishes& wishes) {
    const hts::Offer& offer = wishes.offer;
    hts::Connection connection(wishes.address, offer, wishes.dial);
    while (hts::Seat* seat = connection.next()) {
        auto& worlds = seat->simulator<Worlds>(offer.rows, offer.spaces.agents);
        if (seat->action() == nullptr) worlds.begin(*seat);
        else worlds.step(*seat);
    }
    return 0;
}

} // namespace

int main(int count, char** words) {
    try {
        return run(read({words + 1, words + count}));
    } catch (const hts::Refused& refused) {
        std::cerr << refused.what() << '\n';
        return 3;
    } catch (const std::logic_error& error) {
        std::cerr << error.what() << "\nreference ADDRESS [--seats N] [--rows N] [--agents N] "
                  << "[--not-replayable] [--keys FOLDER]\n";
        return 2;
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
