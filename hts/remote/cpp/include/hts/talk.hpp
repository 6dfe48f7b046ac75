// A simulator's side of the conversation, without any socket: what to say, and whose turn it is.
//
// At each of its turns a seat either begins episodes (it has no action) or takes an action, and
// says where it stands then:
//
//     given a seat --> begin --> turn: action --> tell --> turn: action --> ... --> an end --> begin
//
// The run may have lost its own place meanwhile, or somebody else's: then a seat's next turn is to
// begin an episode, though its last one has not ended. What is said twice is said alike, so
// whatever gets lost between both sides is asked for again.

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

#include "shape.hpp"
#include "spaces.hpp"
#include "wire.hpp"

namespace hts {

/// The run does not take this simulator, and says why.
struct Refused : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class Seat;

/// A message that is to be sent, and perhaps once more.
using Said = std::shared_ptr<const wire::Frames>;

inline Said said(wire::Frames frames) {
    return std::make_shared<const wire::Frames>(std::move(frames));
}

/// What seats have in common: what is to be sent, which of them may move, which have failed.
struct Line {
    std::deque<Said> outbox;
    std::deque<Seat*> turns;
    std::vector<std::int64_t> failed;
};

/// One place in a run: whoever holds it steps its replicas.
class Seat {
public:
    Seat(Line& line, const Offer& offer, const wire::Take& take)
        : line_(line), shape_(offer.spaces, offer.rows), take_(take), total_(offer.rows),
          length_(offer.rows) {}
    Seat(const Seat&) = delete;
    Seat& operator=(const Seat&) = delete;

    std::int64_t number() const { return take_.seat; }
    /// The first replica of the seat: the only one, unless it steps several together.
    std::int64_t replica() const { return take_.first; }
    /// What a simulator draws while it is built follows from this.
    std::uint64_t build_seed() const { return take_.build_seed; }
    /// The run has given it to somebody else, or is another one: what is told here is not heard.
    bool gone() const { return gone_; }

    /// What is to be taken now; null where episodes begin.
    const Action* action() const { return action_ ? &*action_ : nullptr; }
    /// The rows that begin an episode now, and the seed of each of them.
    const std::vector<std::size_t>& rows() const { return rows_; }
    const std::vector<std::uint64_t>& seeds() const { return seeds_; }
    /// The seed of the episode that begins now, where the seat has one row.
    std::uint64_t seed() const { return seeds_.at(0); }

    /// Whatever steps here: made, as T(arguments...), when it is first asked for, and gone with
    /// the seat.
    template <class T, class... Arguments>
    T& simulator(Arguments&&... arguments) {
        if (simulator_ == nullptr) {
            simulator_ = std::make_shared<T>(std::forward<Arguments>(arguments)...);
        }
        return *static_cast<T*>(simulator_.get());
    }

    /// The rows in `rows` have begun an episode with their seeds, and show this.
    void begin(const Observation& observation) {
        need_turn(!action_, "to take an action: tell what came of it");
        std::vector<wire::Bytes> first = shape_.observation(observation, rows_.size());
        if (!is_wanted()) return;
        for (const std::size_t row : rows_) {
            total_[row] = 0;
            length_[row] = 0;
        }
        wire::Stand stand;
        if (ended_) {
            stand = std::move(*ended_);
            ended_.reset();
            for (std::size_t field = 0; field < first.size(); ++field) {
                shape_.replace(stand.observation[field], rows_, first[field]);
            }
        } else {
            stand.observation = std::move(first);
            stand.reward.assign(shape_.rows() * shape_.agents(), 0);
            stand.ends.assign(shape_.rows(), 0);
        }
        say(std::move(stand));
    }

    /// What came of the action. Where an episode ended, `begin` follows.
    void tell(const Observation& observation, const Numbers& reward, const Flags& terminated,
              const Flags& truncated, const Facts& facts = {}) {
        tell(observation, reward, terminated, truncated, RowFacts{{0, facts}});
    }

    /// The same, with what is known of each row whose episode ended ("score"), beside its return
    /// and its length.
    void tell(const Observation& observation, const Numbers& reward, const Flags& terminated,
              const Flags& truncated, const RowFacts& facts) {
        need_turn(action_.has_value(), "to begin an episode: reset it, and begin");
        wire::Stand stand;
        stand.observation = shape_.observation(observation, shape_.rows());
        const std::vector<double> rewards = shape_.reward(reward);
        stand.ends = shape_.ends(terminated, truncated);
        for (const auto& [row, told] : facts) check(told);
        if (!is_wanted()) return;
        count(rewards);
        stand.reward.assign(rewards.begin(), rewards.end());
        end_as_asked(stand);
        finish(std::move(stand), facts);
    }

    /// Its simulator cannot go on: the run hears why (in ASCII), and somebody else may take over.
    void fail(std::string why) {
        why = why.substr(why.size() - std::min(why.size(), wire::text_limit));
        for (char& each : why) {
            if (static_cast<unsigned char>(each) >= 0x80) each = '?';
        }
        if (gone_ || !at_work_) return;
        at_work_ = false;
        line_.outbox.push_back(said(wire::fail(number(), why)));
        line_.failed.push_back(number());
    }

private:
    friend class Talk;

    /// What a run asks a seat for: an action to be taken (none: begin every row), and what then.
    struct Word {
        std::int64_t turn;
        std::vector<std::size_t> begins;
        std::optional<Action> action;
        std::vector<std::uint64_t> seeds;

        bool asks_for_the_same(const Word& other) const {
            return turn == other.turn && action.has_value() == other.action.has_value() &&
                   (action || seeds == other.seeds);
        }
    };

    // --- what the run says ------------------------------------------------------------------

    /// The run's word; one that was heard before, or is late, or no word at all, changes nothing.
    void hear(const wire::Act& act) {
        Word word{act.turn, act.begins, std::nullopt, {}};
        if (!act.action.empty()) {
            word.action = shape_.action(act.action);
            if (!word.action) return;
        }
        const auto seeds = shape_.seeds(act.seeds);
        if (!seeds || (!act.begins.empty() && act.begins.back() >= shape_.rows())) return;
        if (!word.action && act.begins.size() != shape_.rows()) return;
        word.seeds = *seeds;
        const std::optional<Word>& pending = later_ ? later_ : word_;
        const std::optional<Word>& latest = pending ? pending : before_;
        if (latest && word.asks_for_the_same(*latest)) return;
        const bool begins_first = pending && !pending->action;
        // Actions are for whoever has said the turn before, and has not to begin anew first.
        if (word.action && (!said_ || begins_first || word.turn - 1 != turn_)) return;
        if (at_work_) {
            later_ = std::move(word);
        } else {
            take(std::move(word));
        }
    }

    void take(Word word) {
        action_ = word.action;
        rows_.clear();
        seeds_.clear();
        if (!action_) {
            rows_ = word.begins;
            seeds_ = word.seeds;
        }
        word_ = std::move(word);
        ended_.reset();
        if (!queued_) move_up();
    }

    void move_up() {
        queued_ = true;
        line_.turns.push_back(this);
    }

    bool waits() const { return !word_; }

    // --- what its simulator says ------------------------------------------------------------

    void need_turn(bool is_right, const char* what) const {
        if (!at_work_ && !gone_) throw std::logic_error("it is not this seat's turn");
        if (!is_right) throw std::logic_error(std::string("this seat's turn is ") + what);
    }

    /// Whoever was at work is back; false where the run wants something else by now.
    bool is_wanted() {
        at_work_ = false;
        if (gone_) return false;
        if (!later_) return true;
        Word later = std::move(*later_);
        later_.reset();
        take(std::move(later));
        return false;
    }

    static void check(const Facts& facts) {
        for (const auto& [name, fact] : facts) {
            if (!std::isfinite(fact)) throw WrongShape("the fact '" + name + "' is not finite");
            if (name.empty() || name.size() > wire::name_limit) {
                throw WrongShape("facts have short names");
            }
        }
    }

    void count(const std::vector<double>& rewards) {
        const std::size_t agents = shape_.agents();
        for (std::size_t row = 0; row < shape_.rows(); ++row) {
            double sum = 0;
            for (std::size_t agent = 0; agent < agents; ++agent) sum += rewards[row * agents + agent];
            total_[row] += sum / static_cast<double>(agents);
            length_[row] += 1;
        }
    }

    /// The run begins the episodes of some rows again, however these went.
    void end_as_asked(wire::Stand& stand) const {
        const auto agents = static_cast<std::ptrdiff_t>(shape_.agents());
        for (const std::size_t row : word_->begins) {
            stand.ends[row] = 0;
            std::fill_n(stand.reward.begin() + static_cast<std::ptrdiff_t>(row) * agents, agents, 0.0F);
        }
    }

    /// Say it, or wait for the observations that the next episodes begin with.
    void finish(wire::Stand stand, const RowFacts& facts) {
        std::vector<std::size_t> begins = word_->begins, cut;
        for (std::size_t row = 0; row < shape_.rows(); ++row) {
            if (stand.ends[row] == 0) continue;
            begins.push_back(row);
            if (stand.ends[row] == wire::truncated) cut.push_back(row);
            const auto given = facts.find(row);
            Facts& told = stand.facts[row];
            if (given != facts.end()) told = given->second;
            told.emplace("return", total_[row]);
            told.emplace("length", length_[row]);
        }
        for (const wire::Bytes& frame : stand.observation) {
            if (!cut.empty()) stand.last.push_back(shape_.some(frame, cut));
        }
        if (begins.empty()) {
            say(std::move(stand));
            return;
        }
        std::sort(begins.begin(), begins.end());
        seeds_.clear();
        for (const std::size_t row : begins) seeds_.push_back(word_->seeds[row]);
        rows_ = std::move(begins);
        action_.reset();
        ended_ = std::move(stand);
        move_up();
    }

    void say(wire::Stand stand) {
        turn_ = word_->turn;
        before_ = std::move(word_);
        word_.reset();
        said_ = said(wire::stand(number(), turn_, std::move(stand)));
        line_.outbox.push_back(said_);
    }

    Line& line_;
    Shape shape_;
    wire::Take take_;
    std::shared_ptr<void> simulator_;
    std::optional<Action> action_;
    std::vector<std::size_t> rows_;
    std::vector<std::uint64_t> seeds_;
    std::int64_t turn_ = -1; // of what was said last
    Said said_;
    std::optional<Word> word_;   // what it is working on
    std::optional<Word> before_; // and has worked on before that
    std::optional<Word> later_;  // what was asked for while somebody was at work on that
    std::optional<wire::Stand> ended_; // it waits for the observations that episodes begin with
    bool queued_ = false;              // it is in the line of those that may move
    bool at_work_ = false;             // somebody works on its turn: nothing changes below their hands
    bool gone_ = false;
    std::vector<double> total_, length_; // of the running episode of each row
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
