#include "traces/measured_once.hpp"

#include <array>
#include <charconv>
#include <type_traits>
#include <vector>

namespace orrery {

namespace {

// All fields of a measurement in one text: the shortest that reads back as the same numbers.
class Key {
 public:
  explicit Key(char kind) : text_(1, kind) {}

  Key& operator<<(const std::string& field) {
    text_ += field;
    text_ += '\0';
    return *this;
  }
  template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>
  Key& operator<<(Number number) {
    std::array<char, 32> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    text_.append(digits.data(), end) += '\0';
    return *this;
  }
  Key& operator<<(const std::optional<Seconds>& time) { return *this << (time ? time->value() : 0.0); }

  [[nodiscard]] std::string text() && { return std::move(text_); }

 private:
  std::string text_;
};

std::string key_of(const MeasuredGemm& row) {
  return std::move(Key('g') << row.source << row.model << row.gpu << static_cast<int>(row.type) << row.m
                            << row.n << row.k << row.batch << static_cast<int>(row.timed) << row.time.value()
                            << static_cast<int>(row.pass) << row.input_gradient << row.backward)
      .text();
}

std::string key_of(const MeasuredKernel& row) {
  return std::move(Key('k') << row.source << row.model << row.gpu << row.op << row.bytes.value()
                            << static_cast<int>(row.timed) << row.time.value()
                            << static_cast<int>(row.backward) << static_cast<int>(row.program))
      .text();
}

std::string key_of(const MeasuredAttention& row) {
  return std::move(Key('a') << row.source << row.gpu << row.kernel << row.batch << row.heads << row.kv_heads
                            << row.query_tokens << row.kv_tokens << row.head_dim
                            << static_cast<int>(row.causal) << static_cast<int>(row.backward)
                            << row.time.value())
      .text();
}

std::string key_of(const MeasuredCollective& row) {
  return std::move(Key('c') << row.source << row.system << row.op << row.bytes.value() << row.ranks
                            << row.ranks_per_node << row.gpu_link.bandwidth.value()
                            << row.gpu_link.latency.value() << row.network.bandwidth.value()
                            << row.network.latency.value() << row.time.value())
      .text();
}

}  // namespace

std::int64_t MeasuredOnce::drop_known(Profiles& table) {
  std::vector<std::string> added;
  std::int64_t dropped = 0;
  const auto filter = [&](auto& rows) {
    dropped += static_cast<std::int64_t>(std::erase_if(rows, [&](const auto& row) {
      std::string key = key_of(row);
      if (known_.count(key) > 0) return true;
      added.push_back(std::move(key));
      return false;
    }));
  };
  filter(table.gemms);
  filter(table.kernels);
  filter(table.attentions);
  filter(table.collectives);
  known_.insert(std::make_move_iterator(added.begin()), std::make_move_iterator(added.end()));
  return dropped;
}

}  // namespace orrery
