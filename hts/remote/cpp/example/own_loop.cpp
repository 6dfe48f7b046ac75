// A simulator that keeps its own loop and asks, as the README's: own_loop ADDRESS.

#include <hts/seat.hpp>
#include <iostream>

#include "world.hpp"

int main(int count, char** words) try {
    if (count != 2) {
        std::cerr << "own_loop ADDRESS\n";
        return 2;
    }
    World world(1);
    hts::OwnSeat seat(words[1], spaces(1));
    const hts::Action* action = nullptr;
    while (!seat.over()) {
        Shown shown;
        if (action == nullptr) { // an episode begins, also in the middle of one
            world.reset(seat.seed());
            world.show(shown);
            action = seat.reset(shown.fields());
        } else {
            world.step(action->choices.data());
            world.show(shown);
            action = seat.step(shown.fields(), world.reward(0), world.is_terminated(),
                               world.is_truncated());
        }
    }
    return 0;
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
