// One seat: what its simulator says and what the run says, without any socket.
//
// At each of its turns a seat either begins episodes (it has no action) or takes an action, and
// says where it stands then:
//
//     given a seat -> begin -> turn: action -> tell -> turn: action -> ... -> an end -> begin
//
// The run may have lost its own place meanwhile, or somebody else's: then a seat's next turn is to
// begin an episode, though its last one has not ended. What is said twice is said alike, so
// whatever gets lost between both sides is asked for again.

#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "shape.hpp"
#include "spaces.hpp"
#include "wire.hpp"

namespace hts {

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
            for (std::size_t agent = 0; agent < agents; ++agent) {
                sum += rewards[row * agents + agent];
            }
            total_[row] += sum / static_cast<double>(agents);
            length_[row] += 1;
        }
    }

    /// The run begins the episodes of some rows again, however these went.
    void end_as_asked(wire::Stand& stand) const {
        const std::size_t agents = shape_.agents();
        for (const std::size_t row : word_->begins) {
            stand.ends[row] = 0;
            std::fill_n(&stand.reward[row * agents], agents, 0.0F);
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
    bool queued_ = false;  // it is in the line of those that may move
    bool at_work_ = false; // somebody works on its turn: nothing changes below their hands
    bool gone_ = false;
    std::vector<double> total_, length_; // of the running episode of each row
};

} // namespace hts
