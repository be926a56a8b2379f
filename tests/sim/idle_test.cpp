#include "sim/replay/idle.hpp"

#include "tests/catch.hpp"

using namespace orrery;

namespace {

std::vector<IdlePiece> split(Interval window, std::vector<Interval> transfers) {
  std::vector<IdlePiece> pieces;
  split_idle(window, std::move(transfers), SpanKind::exposed_p2p, SpanKind::bubble_steady, pieces);
  return pieces;
}

double total(const std::vector<IdlePiece>& pieces, SpanKind kind) {
  double sum = 0;
  for (const IdlePiece& piece : pieces) sum += piece.kind == kind ? piece.when.end - piece.when.start : 0;
  return sum;
}

}  // namespace

TEST_CASE("idle time is exposed while a transfer is on its way and bubble before it sets off") {
  const auto pieces = split({1, 5}, {{3, 5}});
  REQUIRE(pieces.size() == 2);
  CHECK(pieces[0].kind == SpanKind::bubble_steady);
  CHECK(pieces[1].kind == SpanKind::exposed_p2p);
  CHECK(pieces[1].when.start == 3);
}

TEST_CASE("transfers that overlap or leave the window are counted once, within it") {
  const auto pieces = split({1, 10}, {{6, 8}, {0, 2}, {7, 12}, {1.5, 1.8}});
  CHECK(total(pieces, SpanKind::exposed_p2p) == Approx((2 - 1) + (10 - 6)));
  CHECK(total(pieces, SpanKind::bubble_steady) == Approx(6 - 2));
  double at = 1;
  for (const IdlePiece& piece : pieces) {
    CHECK(piece.when.start == at);
    at = piece.when.end;
  }
  CHECK(at == 10);
}

TEST_CASE("an empty window has no pieces, and one without transfers is all bubble") {
  CHECK(split({2, 2}, {{0, 5}}).empty());
  CHECK(split({2, 3}, {}).size() == 1);
  CHECK(split({2, 3}, {{3, 4}, {0, 2}}).front().kind == SpanKind::bubble_steady);
}
