#include "sim/search/play_ahead.hpp"

#include <algorithm>
#include <exception>
#include <numeric>
#include <system_error>

namespace orrery {
namespace {

void play(std::vector<Split>& splits, Seconds most, PlanPlayer& player) {
  for (const std::size_t index : soonest_first(splits)) {
    Split& split = splits[index];
    if (split.least >= most) return;
    split.known = player.estimate(split.plan, split.memory, most);
    if (split.known->iteration) most = std::min(most, *split.known->iteration);
  }
}

}  // namespace

std::vector<std::size_t> soonest_first(const std::vector<Split>& splits) {
  std::vector<std::size_t> soonest(splits.size());
  std::iota(soonest.rbegin(), soonest.rend(), std::size_t{0});
  std::stable_sort(soonest.begin(), soonest.end(),
                   [&](std::size_t a, std::size_t b) { return splits[a].least < splits[b].least; });
  return soonest;
}

PlayAhead::PlayAhead(const SearchJob& job, const PriceBook& book, int threads) : job_(job), book_(book) {
  constexpr int kMost = 16;  // more would play what is too far ahead
  try {
    for (int i = 0; i < std::min(threads, kMost); ++i) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
    // The machine has no more threads to give: those that there are will do.
  }
}

PlayAhead::~PlayAhead() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool PlayAhead::may_begin() const {
  constexpr std::size_t kOfEach = 8;
  return begun_.size() < kOfEach * threads_.size();
}

void PlayAhead::begin(const CandidatePlace& place, std::vector<Split> splits, Seconds most,
                      const Least& least) {
  const auto candidate = std::make_shared<Candidate>(Candidate{std::move(splits), most, least});
  begun_.emplace(place, candidate);
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(candidate);
  }
  changed_.notify_all();
}

std::optional<std::vector<Split>> PlayAhead::take(const CandidatePlace& place) {
  const auto found = begun_.find(place);
  if (found == begun_.end()) return std::nullopt;
  const std::shared_ptr<Candidate> candidate = found->second;
  begun_.erase(found);
  std::unique_lock lock(mutex_);
  if (candidate->state == State::waiting) std::erase(waiting_, candidate);
  changed_.wait(lock, [&] { return candidate->state != State::playing; });
  return std::move(candidate->splits);
}

void PlayAhead::drop_if(const std::function<bool(const Least&)>& is_dropped) {
  std::erase_if(begun_, [&](const auto& one) {
    if (!is_dropped(one.second->least)) return false;
    const std::lock_guard lock(mutex_);
    std::erase(waiting_, one.second);
    return true;
  });
}

void PlayAhead::work() {
  StageFitter fitter(book_);
  PlanPlayer player(job_, book_, fitter);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_closing_ || !waiting_.empty(); });
    if (is_closing_) return;
    const std::shared_ptr<Candidate> candidate = waiting_.front();
    waiting_.pop_front();
    candidate->state = State::playing;
    lock.unlock();
    try {
      play(candidate->splits, candidate->most, player);
    } catch (const std::exception&) {
      // The search meets it when it plays the candidate itself.
    }
    lock.lock();
    candidate->state = State::over;
    changed_.notify_all();
  }
}

}  // namespace orrery
