#include "costmodels/layers/pass_pieces.hpp"

#include <algorithm>

#include "platforms/errors.hpp"

namespace orrery {
namespace {

// Appends operators and collectives to pieces.
class PieceList {
 public:
  PieceList(const PassOperators& operators, const PassTimes& times, PassOrder order)
      : operators_(operators), times_(times), order_(order) {}

  std::vector<PassPiece> write() {
    const std::size_t count = operators_.compute.size();
    if (order_ == PassOrder::forward) {
      plain_calls_after(0);
      for (std::size_t i = 0; i < count; ++i) {
        compute(i);
        plain_calls_after(i + 1);
      }
    } else {
      for (std::size_t i = count; i-- > 0;) {
        plain_calls_after(i + 1);
        compute(i);
      }
      plain_calls_after(0);
    }
    if (current_ != PassPiece{}) pieces_.push_back(current_);
    return std::move(pieces_);
  }

 private:
  void plain_calls_after(std::size_t after) {
    calls_after(after, [](const CallPlace& place) { return place.beside == 0.0; });
  }

  // First what runs beside a collective, then the rest.
  void compute(std::size_t index) {
    const Operator& op = operators_.compute[index];
    const Work work{times_.compute[index], flops_of(op)};
    current_.has_attention |= std::holds_alternative<Attention>(op);
    double left = 1.0;
    calls_after(index + 1, [&](const CallPlace& place) {
      if (place.beside == 0.0) return false;
      current_.beside = work * place.beside;
      left -= place.beside;
      return true;
    });
    current_.compute += work * left;
  }

  // Ends a piece with each call of that place that is `wanted`, in the order of the pass.
  template <class Wanted>
  void calls_after(std::size_t after, Wanted wanted) {
    const std::size_t count = operators_.places.size();
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t call = order_ == PassOrder::forward ? i : count - 1 - i;
      const CallPlace& place = operators_.places[call];
      if (place.after != after || !wanted(place)) continue;
      current_.call = PricedCall{place.group, std::get<Collective>(operators_.communication[call]),
                                 times_.communication[call]};
      pieces_.push_back(current_);
      current_ = {};
    }
  }

  const PassOperators& operators_;
  const PassTimes& times_;
  PassOrder order_;
  PassPiece current_;
  std::vector<PassPiece> pieces_;
};

}  // namespace

Work& Work::operator+=(const Work& other) {
  time += other.time;
  flops += other.flops;
  return *this;
}

PassCost cost_of(const PassOperators& operators, const PassTimes& times) {
  PassCost cost;
  for (std::size_t i = 0; i < operators.compute.size(); ++i) {
    cost.compute += times.compute[i];
    cost.flops += flops_of(operators.compute[i]);
  }
  for (std::size_t i = 0; i < operators.communication.size(); ++i) {
    const CallPlace& place = operators.places[i];
    const Seconds beside = place.beside > 0 ? times.compute[place.after - 1] * place.beside : Seconds(0);
    cost.communication += std::max(Seconds(0), times.communication[i] - beside);
  }
  return cost;
}

Pass module_pass(const BlockOperators& block, const PassTimes& forward, RecomputeModule module) {
  Pass pass;
  for (const ModuleSection& section : block.modules) {
    const bool inside =
        section.module == RecomputeModule::moe_act || section.module == RecomputeModule::shared_experts;
    if (section.module != module && !(inside && module == RecomputeModule::moe)) continue;
    PassOperators& out = pass.operators;
    const std::size_t shift = out.compute.size();
    for (std::size_t i = section.first; i < section.end; ++i) {
      out.compute.push_back(block.forward.compute[i]);
      pass.times.compute.push_back(forward.compute[i]);
    }
    // What the attention core exchanges hides under it.
    if (module == RecomputeModule::core_attn) continue;
    for (std::size_t i = section.first_call; i < section.end_call; ++i) {
      CallPlace place = block.forward.places[i];
      place.after = place.after - section.first + shift;
      out.communication.push_back(block.forward.communication[i]);
      out.places.push_back(place);
      pass.times.communication.push_back(forward.communication[i]);
    }
    const ExpertSection& experts = block.forward.experts;
    if (module != RecomputeModule::moe || experts.count == 0) continue;
    out.experts.count = experts.count;
    if (experts.first >= section.first && experts.first < section.end)
      out.experts.first = experts.first - section.first + shift;
    if (experts.end > section.first && experts.end <= section.end)
      out.experts.end = experts.end - section.first + shift;
  }
  return pass;
}

Pass repeated_pass(const BlockOperators& block, const PassTimes& forward) {
  Pass pass{block.forward, forward};
  const std::size_t kept = block.forward.compute.size() - block.unrepeated;
  pass.operators.compute.resize(kept);
  pass.times.compute.resize(kept);
  while (!pass.operators.places.empty() && pass.operators.places.back().after > kept) {
    pass.operators.places.pop_back();
    pass.operators.communication.pop_back();
    pass.times.communication.pop_back();
  }
  return pass;
}

Pass without(const Pass& pass, const std::vector<std::size_t>& compute) {
  Pass rest{{{}, pass.operators.communication, pass.operators.places}, {{}, pass.times.communication}};
  const auto is_left_out = [&](std::size_t index) {
    return std::find(compute.begin(), compute.end(), index) != compute.end();
  };
  std::vector<std::size_t> kept_before{0};  // [i]: of the first i operators
  for (std::size_t i = 0; i < pass.operators.compute.size(); ++i) {
    if (!is_left_out(i)) {
      rest.operators.compute.push_back(pass.operators.compute[i]);
      rest.times.compute.push_back(pass.times.compute[i]);
    }
    kept_before.push_back(rest.operators.compute.size());
  }
  for (CallPlace& place : rest.operators.places) {
    if (place.beside > 0.0 && is_left_out(place.after - 1)) place.beside = 0.0;
    place.after = kept_before[place.after];
  }
  return rest;
}

std::vector<PassPiece> pieces_of(const PassOperators& operators, const PassTimes& times, PassOrder order) {
  return PieceList(operators, times, order).write();
}

}  // namespace orrery
