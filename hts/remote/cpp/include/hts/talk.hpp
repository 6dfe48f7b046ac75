// Everything that one connection says and hears, without any socket: its seats, and whose turn
// it is.

#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "place.hpp"
#include "spaces.hpp"
#include "wire.hpp"

namespace hts {

/// The run does not take this simulator, and says why.
struct Refused : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Everything that one connection says and hears.
class Talk {
public:
    explicit Talk(Offer offer) : offer_(std::move(offer)) {
        check(offer_);
        std::random_device device;
        for (int at = 0; at < 16; ++at) session_.push_back(static_cast<char>(device() & 0xff));
    }

    bool over() const { return over_; }
    bool has_turns() const { return !line_.turns.empty(); }

    /// A seat that may move, for somebody to work on; null where there is none.
    Seat* next_turn() {
        tidy();
        if (line_.turns.empty()) return nullptr;
        Seat* seat = line_.turns.front();
        line_.turns.pop_front();
        seat->queued_ = false;
        seat->at_work_ = true;
        return seat;
    }

    /// What is to be sent, the oldest first. Who this is comes before where its seats stand.
    std::deque<Said>& outbox() {
        if (hello_is_due_) {
            line_.outbox.push_front(said(wire::hello(offer_, session_, run_, turns(false))));
            hello_is_due_ = false;
        }
        return line_.outbox;
    }

    /// Nothing was heard for a while: say what is waited for.
    void ping() { line_.outbox.push_back(said(wire::ping(turns(true)))); }

    /// Leave: whoever else is there may take the seats.
    void bye() { line_.outbox.push_back(said(wire::bye())); }

    /// One message of the run's; false where it says no more than that the run is there.
    bool hear(const wire::Frames& frames) {
        const std::optional<wire::Message> message = wire::read(frames, offer_.rows);
        if (!message) return false;
        std::visit([this](const auto& each) { this->heard(each); }, *message);
        return !std::holds_alternative<wire::Here>(*message);
    }

private:
    void heard(const wire::Welcome& welcome) {
        while (welcome.run != run_ && !seats_.empty()) drop(seats_.begin()->first);
        run_ = welcome.run;
    }

    void heard(const wire::Take& take) {
        const bool fits = static_cast<std::size_t>(take.rows) == offer_.rows;
        if (fits && seats_.count(take.seat) == 0) {
            seats_[take.seat] = std::make_unique<Seat>(line_, offer_, take);
        }
    }

    void heard(const wire::Act& act) {
        const auto seat = seats_.find(act.seat);
        if (seat != seats_.end()) seat->second->hear(act);
    }

    void heard(const wire::Again& again) {
        const auto found = seats_.find(again.seat);
        if (found == seats_.end()) return;
        const Seat& seat = *found->second;
        if (seat.said_ && again.turn == seat.turn_) line_.outbox.push_back(seat.said_);
    }

    void heard(const wire::Drop& dropped) { drop(dropped.seat); }
    void heard(const wire::Who&) { hello_is_due_ = true; }
    void heard(const wire::Here&) {}
    void heard(const wire::Refused& refused) { throw Refused(refused.why); }
    void heard(const wire::Over&) { over_ = true; }

    wire::Turns turns(bool of_those_that_wait) const {
        wire::Turns found;
        for (const auto& [number, seat] : seats_) {
            if (!of_those_that_wait || seat->waits()) found.emplace_back(number, seat->turn_);
        }
        return found;
    }

    void drop(std::int64_t number) {
        const auto found = seats_.find(number);
        if (found == seats_.end()) return;
        Seat* seat = found->second.get();
        auto& turns = line_.turns;
        turns.erase(std::remove(turns.begin(), turns.end(), seat), turns.end());
        seat->gone_ = true;
        gone_.push_back(std::move(found->second));
        seats_.erase(found);
    }

    /// Seats that have failed are given back; those that are gone go, once nobody works on them.
    void tidy() {
        for (const std::int64_t number : std::exchange(line_.failed, {})) drop(number);
        const auto is_idle = [](const auto& seat) { return !seat->at_work_; };
        gone_.erase(std::remove_if(gone_.begin(), gone_.end(), is_idle), gone_.end());
    }

    Offer offer_;
    Line line_;
    std::map<std::int64_t, std::unique_ptr<Seat>> seats_;
    std::vector<std::unique_ptr<Seat>> gone_; // somebody may hold a pointer to them still
    wire::Bytes session_;
    std::string run_;
    bool hello_is_due_ = true;
    bool over_ = false;
};

} // namespace hts
