// How many tokens the busiest GPU's experts get where routing is not forced into balance. Every exchange
// waits for that GPU, so time and memory of all are counted as its own.
#pragma once

#include <cstdint>

namespace orrery {

// Mean of the largest of `count` (>= 1) independent standard normal numbers; 0 of one.
double expected_largest(int count);

// Experts of one layer on `ways` GPUs (expert parallelism), as many on each.
struct ExpertSpread {
  std::int64_t experts = 1;
  std::int64_t per_token = 1;
  int ways = 1;
};

// Tokens that the busiest GPU's experts get, over the mean of all: 1 + cv / sqrt(m) x expected_largest(ways)
// with m experts a GPU. `cv` is the coefficient of variation of experts' loads (CV of Shazeer et al. 2017,
// arXiv 1701.06538, eq. 11; 0: balanced), which the router's auxiliary loss holds down. Sums of m loads vary
// by cv / sqrt(m), and their largest is taken as of normal numbers. At most E / max(k, m): no GPU gets more
// than k or m copies of every token.
double busiest_load(const ExpertSpread&, double cv);

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
