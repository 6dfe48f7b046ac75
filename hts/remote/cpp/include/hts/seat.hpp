// For simulators: dial in to a run, and be trained on. Needs libzmq and msgpack-cxx, no more.
//
//     hts::OwnSeat seat("tcp://127.0.0.1:5555", spaces);
//     const hts::Action* action = nullptr;
//     while (!seat.over()) {
//         if (action == nullptr) { // an episode begins, also in the middle of one
//             game.reset(seat.seed());
//             action = seat.reset(game.numbers());
//         } else {
//             game.step(action->choice());
//             action = seat.step(game.numbers(), game.reward(), game.is_lost(), game.is_late());
//         }
//     }
//
// `OwnSeat` is for one simulator with a loop of its own. `Connection` is for many on one
// connection: it hands out whoever's turn it is, and nobody waits for anybody else.
//
// A connection belongs to one thread. When the run goes away, and comes back, everything goes on
// by itself.

#pragma once

#include <zmq.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "place.hpp"
#include "spaces.hpp"
#include "talk.hpp"
#include "wire.hpp"

namespace hts {

/// No run has said a word for as long as one was to be waited for.
struct TimedOut : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// CURVE keys in Z85: the run's public one, and a pair of one's own.
struct Keys {
    std::string run, own, secret;

    /// From two files of `zmq.auth`: the run's public key, one's own secret one.
    static Keys from_files(const std::filesystem::path& run, const std::filesystem::path& own) {
        return {read(run, "public-key"), read(own, "public-key"), read(own, "secret-key")};
    }

    /// From a folder that holds `run.key` and one `NAME.key_secret`, as `hts-keys` makes them.
    static Keys from_folder(const std::filesystem::path& folder) {
        std::vector<std::filesystem::path> own;
        for (const auto& file : std::filesystem::directory_iterator(folder)) {
            const std::filesystem::path& path = file.path();
            if (path.extension() == ".key_secret" && path.stem() != "run") own.push_back(path);
        }
        if (own.size() != 1) {
            throw std::runtime_error(folder.string() +
                                     ": a simulator's folder holds one NAME.key_secret");
        }
        return from_files(folder / "run.key", own.front());
    }

private:
    static std::string read(const std::filesystem::path& path, const std::string& name) {
        std::ifstream file(path);
        std::string line;
        while (std::getline(file, line)) {
            const std::size_t at = line.find_first_not_of(" \t");
            if (at == line.npos || line.compare(at, name.size(), name) != 0) continue;
            const std::size_t first = line.find('"'), last = line.rfind('"');
            if (last != line.npos && last - first == 41) return line.substr(first + 1, 40);
        }
        throw std::runtime_error(path.string() + ": holds no " + name);
    }
};

/// How to dial in.
struct Dial {
    std::optional<Keys> keys = {};       // where the run listens beyond its own machine
    std::optional<double> patience = {}; // seconds without a word from any run, then TimedOut
};

/// A DEALER, set up as every client has to.
class Socket {
public:
    Socket(const std::string& address, const Dial& dial) : context_(zmq_ctx_new()) {
        need(context_ != nullptr);
        socket_.reset(zmq_socket(context_.get(), ZMQ_DEALER));
        need(socket_ != nullptr);
        set(ZMQ_LINGER, 0);
        set(ZMQ_RECONNECT_IVL, 50);
        set(ZMQ_RECONNECT_IVL_MAX, 1'000);
        set(ZMQ_HEARTBEAT_IVL, 2'000); // they also go out from a busy step
        set(ZMQ_HEARTBEAT_TIMEOUT, 10'000);
        if (dial.keys) {
            set(ZMQ_CURVE_SERVERKEY, dial.keys->run);
            set(ZMQ_CURVE_PUBLICKEY, dial.keys->own);
            set(ZMQ_CURVE_SECRETKEY, dial.keys->secret);
        }
        if (zmq_connect(socket_.get(), address.c_str()) != 0) {
            throw std::runtime_error(address + ": " + zmq_strerror(zmq_errno()));
        }
    }

    /// False where nobody is there to take it.
    bool send(const wire::Frames& frames) {
        for (std::size_t at = 0; at < frames.size(); ++at) {
            const int flags = ZMQ_DONTWAIT | (at + 1 < frames.size() ? ZMQ_SNDMORE : 0);
            while (zmq_send(socket_.get(), frames[at].data(), frames[at].size(), flags) < 0) {
                if (zmq_errno() == EAGAIN) return false;
                need(zmq_errno() == EINTR);
            }
        }
        return true;
    }

    /// False where nothing has come.
    bool receive(wire::Frames& frames) {
        frames.clear();
        for (bool more = true; more;) {
            Message message;
            while (zmq_msg_recv(&message.part, socket_.get(), ZMQ_DONTWAIT) < 0) {
                if (zmq_errno() == EAGAIN) return false;
                need(zmq_errno() == EINTR);
            }
            const auto* data = static_cast<const char*>(zmq_msg_data(&message.part));
            // A message of a run has three frames at most; one more makes it invalid.
            if (frames.size() < 4) frames.emplace_back(data, zmq_msg_size(&message.part));
            more = zmq_msg_more(&message.part) != 0;
        }
        return true;
    }

    /// Wait until something has come, or so long.
    void wait(std::chrono::milliseconds most) {
        zmq_pollitem_t item{socket_.get(), 0, ZMQ_POLLIN, 0};
        need(zmq_poll(&item, 1, static_cast<long>(most.count())) >= 0 || zmq_errno() == EINTR);
    }

    /// Let what was said last go out, for a moment.
    void linger() { set(ZMQ_LINGER, 200); }

private:
    struct Message {
        zmq_msg_t part;
        Message() { zmq_msg_init(&part); }
        ~Message() { zmq_msg_close(&part); }
        Message(const Message&) = delete;
        Message& operator=(const Message&) = delete;
    };
    struct EndContext {
        void operator()(void* context) const {
            while (zmq_ctx_term(context) != 0 && zmq_errno() == EINTR) {
            }
        }
    };
    struct Close {
        void operator()(void* socket) const { zmq_close(socket); }
    };

    static void need(bool good) {
        if (!good) throw std::runtime_error(zmq_strerror(zmq_errno()));
    }

    void set(int option, int value) {
        need(zmq_setsockopt(socket_.get(), option, &value, sizeof value) == 0);
    }

    void set(int option, const std::string& key) {
        if (zmq_setsockopt(socket_.get(), option, key.c_str(), key.size() + 1) != 0) {
            throw std::runtime_error("a key is 40 characters in Z85, and libzmq knows CURVE");
        }
    }

    std::unique_ptr<void, EndContext> context_;
    std::unique_ptr<void, Close> socket_;
};

/// A simulator's connection to a run, or to one run after the other.
class Connection {
public:
    Connection(const std::string& address, Offer offer, Dial dial = {})
        : dial_(std::move(dial)), talk_(std::move(offer)), socket_(address, dial_) {}

    ~Connection() {
        try {
            socket_.linger();
            talk_.bye();
            flush();
        } catch (const std::exception&) { // it leaves without a word, then
        }
    }

    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    /// The run needs no simulators any more.
    bool over() const { return talk_.over(); }

    /// Wait until a seat may move; null when the run is over. The seat stays where it is at least
    /// until this is called again, and for as long as its turn is not answered.
    Seat* next() {
        for (;;) {
            Seat* seat = talk_.next_turn();
            flush();
            if (seat != nullptr || over()) return seat;
            listen();
        }
    }

    /// Send what was said meanwhile, as `next` does.
    void flush() {
        std::deque<Said>& outbox = talk_.outbox();
        while (!outbox.empty()) {
            // Where nobody is there to hear it, it is asked for again.
            if (!socket_.send(*outbox.front())) outbox.clear();
            else outbox.pop_front();
        }
    }

private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds ping_every{1'000};

    /// Hear what has come, or say that something is waited for.
    void listen() {
        const auto since = [](Clock::time_point then) {
            return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - then);
        };
        socket_.wait(std::max(ping_every - since(quiet_since_), std::chrono::milliseconds(0)));
        wire::Frames frames;
        while (!talk_.has_turns() && socket_.receive(frames)) {
            heard_ = Clock::now();
            if (talk_.hear(frames)) quiet_since_ = heard_;
        }
        if (talk_.has_turns() || since(quiet_since_) < ping_every) return;
        quiet_since_ = Clock::now();
        talk_.ping();
        const std::chrono::duration<double> silence = Clock::now() - heard_;
        if (dial_.patience && silence.count() > *dial_.patience) {
            throw TimedOut("no run has said a word for " + std::to_string(*dial_.patience) + " s");
        }
    }

    Dial dial_;
    Talk talk_;
    Socket socket_;
    Clock::time_point heard_ = Clock::now();
    Clock::time_point quiet_since_ = heard_;
};

/// One seat, for a simulator that keeps its own loop: it asks, and waits for the answer.
class OwnSeat {
public:
    OwnSeat(const std::string& address, Offer offer, Dial dial = {})
        : connection_(address, with_one_seat(std::move(offer)), std::move(dial)) {
        wait();
    }

    OwnSeat(const std::string& address, const Spaces& spaces)
        : OwnSeat(address, Offer{spaces, 1, 1, true, "c++"}) {}

    /// The run needs no simulators any more.
    bool over() const { return seat_ == nullptr; }

    /// The seat of this turn: its replica, its seeds, the rows that begin.
    const Seat& held() const {
        if (over()) throw std::logic_error("the run is over: there is nothing to ask it for");
        return *seat_;
    }

    /// What the episode that begins now is to be seeded with.
    std::uint64_t seed() const { return held().seed(); }

    /// An episode has begun and shows this; the action, or null where it begins again.
    const Action* reset(const Observation& observation) {
        mine().begin(observation);
        return wait();
    }

    /// What came of the action; the next one, or null where an episode begins.
    const Action* step(const Observation& observation, const Numbers& reward,
                       const Flags& terminated = false, const Flags& truncated = false,
                       const Facts& facts = {}) {
        mine().tell(observation, reward, terminated, truncated, facts);
        return wait();
    }

    const Action* step(const Observation& observation, const Numbers& reward,
                       const Flags& terminated, const Flags& truncated, const RowFacts& facts) {
        mine().tell(observation, reward, terminated, truncated, facts);
        return wait();
    }

private:
    static Offer with_one_seat(Offer offer) {
        offer.seats = 1;
        return offer;
    }

    Seat& mine() {
        held();
        return *seat_;
    }

    const Action* wait() {
        seat_ = connection_.next();
        return over() ? nullptr : seat_->action();
    }

    Connection connection_;
    Seat* seat_ = nullptr;
};

} // namespace hts
