// How many tokens the busiest GPU's experts get where routing is not forced into balance. Every exchange
// waits for that GPU, so time and memory of all are counted as its own.
#pragma once

#include <cstdint>
#include <optional>

namespace orrery {

// Mean of the largest of `count` (>= 1) independent standard normal numbers; 0 of one.
double expected_largest(int count);

// Experts of one layer on `ways` GPUs (expert parallelism), as many on each.
struct ExpertSpread {
  std::int64_t experts = 1;
  std::int64_t per_token = 1;
  int ways = 1;
};

// Of which tokens an expert's capacity is, where products with one-hot matrices bring tokens to experts' rows
// and back (GShard, arXiv 2006.16668, algorithm 1): no such matrices, those of each sequence, of a GPU's
// microbatch.
enum class OneHotGroup { none, sequence, microbatch };

// `cv`: coefficient of variation of experts' loads, 0 to 10 (CV of Shazeer et al. 2017, arXiv 1701.06538, eq.
// 11; 0: routing forced into balance), which the router's auxiliary loss holds down. `capacity`: rows that
// each expert gets over an even share, whatever the routing (GShard, arXiv 2006.16668, section 2.2): what is
// beyond is dropped, what is missing is zeros.
struct ExpertLoad {
  double cv = 0.0;
  std::optional<double> capacity = {};
  OneHotGroup one_hot = OneHotGroup::none;  // where there is a capacity
  bool one_length = false;                  // all experts get as many rows as the busiest of them
  bool operator==(const ExpertLoad&) const = default;
};

// Tokens that the busiest GPU's experts get, over the mean of all: the capacity, or 1 + cv / sqrt(m) x
// expected_largest(ways) with m experts a GPU. Sums of m loads vary by cv / sqrt(m), and their largest is
// taken as of normal numbers. At most E / max(k, m): no GPU gets more than k or m copies of every token.
double busiest_load(const ExpertSpread&, const ExpertLoad&);
// Rows that its experts multiply, over the mean: those tokens, or of as many experts as long as the busiest.
double multiplied_load(const ExpertSpread&, const ExpertLoad&);

// One-hot matrices of a GPU's microbatch: how many, each of `tokens` by `places`, the rows of all experts.
struct OneHotMatrices {
  std::int64_t count = 0, tokens = 0, places = 0;
  [[nodiscard]] double elements() const {
    return static_cast<double>(count) * static_cast<double>(tokens) * static_cast<double>(places);
  }
};
// Of `tokens` in all, of `sequences`. None where tokens are copied.
OneHotMatrices one_hot_matrices(const ExpertSpread&, const ExpertLoad&, std::int64_t tokens,
                                std::int64_t sequences);

// How a token chooses: `per_token` different experts, of the best `chosen_groups` (>= 1) of `groups` only
// (DeepSeek-V3, arXiv 2412.19437, section 2.1.2: at most so many nodes).
struct ExpertChoice {
  std::int64_t experts = 1;
  std::int64_t per_token = 1;
  std::int64_t groups = 1, chosen_groups = 1;
};

// Mean of the places, out of `places` that hold as many experts each in order, that a token's experts are on,
// were groups and experts drawn at random. A place holds whole groups, or is part of one.
double places_reached(const ExpertChoice&, double places);
// The same where token i takes the experts i k to i k + k - 1, counted round (FakeBalancedGate of NeMo
// AutoModel, components/moe/layers.py).
double places_reached_in_turn(const ExpertChoice&, std::int64_t places);

}  // namespace orrery
