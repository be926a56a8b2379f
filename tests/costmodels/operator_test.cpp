#include "costmodels/operators/operator.hpp"
#include "tests/catch.hpp"

using namespace orrery;

TEST_CASE("a GEMM does two operations for each of m n k products") {
  CHECK(flops_of(Gemm{.m = 10, .n = 20, .k = 30, .batch = 4}).value() == 2.0 * 10 * 20 * 30 * 4);
}

TEST_CASE("attention does two GEMMs forward, two and a half times that backward, half of it when causal") {
  Attention op{.batch = 2,
               .heads = 8,
               .kv_heads = 2,
               .query_tokens = 16,
               .kv_tokens = 32,
               .head_dim = 64,
               .causal = false};
  const double forward = 4.0 * 2 * 8 * 16 * 32 * 64;
  CHECK(flops_of(op).value() == forward);
  op.causal = true;
  CHECK(flops_of(op).value() == forward / 2);
  op.direction = Direction::backward;
  CHECK(flops_of(op).value() == 2.5 * forward / 2);
}

// It masks the scores after it has them all, and keeps them for the backward's four GEMMs.
TEST_CASE("unfused attention does all scores, causal or not, and twice as much backward") {
  Attention op{.batch = 2,
               .heads = 8,
               .query_tokens = 16,
               .kv_tokens = 32,
               .head_dim = 64,
               .causal = true,
               .kernel = AttentionKernel::unfused};
  const double forward = 4.0 * 2 * 8 * 16 * 32 * 64;
  CHECK(flops_of(op).value() == forward);
  op.direction = Direction::backward;
  CHECK(flops_of(op).value() == 2 * forward);
}

TEST_CASE("operators that move bytes do no operations") {
  CHECK(flops_of(MemoryBound{MemoryKernel::norm, Bytes(1e6)}).value() == 0);
  CHECK(flops_of(Collective{.bytes = Bytes(1e6), .ranks = 8}).value() == 0);
  CHECK(flops_of(PointToPoint{.bytes = Bytes(1e6)}).value() == 0);
}

TEST_CASE("kernels and collectives have the names that tables use") {
  CHECK(to_text(MemoryKernel::residual) == "residual");
  CHECK(to_text(MemoryKernel::cross_entropy) == "cross_entropy");
  CHECK(to_text(CollectiveKind::all_to_all) == "all_to_all");
}
