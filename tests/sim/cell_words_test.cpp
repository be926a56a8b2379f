// What cells name, and what they deny.
#include "sim/measured/cell_words.hpp"

#include "tests/catch.hpp"

namespace orrery {

TEST_CASE("a denial reaches what is beside it in its clause, and no further") {
  using Row = std::tuple<const char*, const char*, Said>;
  const auto [cell, word, meaning] = GENERATE(values<Row>({{"bf16, not fp8", "fp8", Said::no},
                                                           {"bf16, not fp8", "bf16", Said::yes},
                                                           {"fp8 off bf16", "bf16", Said::yes},
                                                           {"fp8 off bf16", "fp8", Said::no},
                                                           {"no fp8 but fp4", "fp4", Said::yes},
                                                           {"w/o fp8", "fp8", Said::no},
                                                           {"non-causal", "causal", Said::no},
                                                           {"fp8=0", "fp8", Said::no},
                                                           {"fp8 3.0", "fp8", Said::yes},
                                                           {"fp8 is not used", "fp8", Said::no},
                                                           {"disabled fp8", "fp8", Said::no},
                                                           {"mxfp8", "fp8", Said::nothing},
                                                           {"mxfp8", "*fp8", Said::yes}}));
  INFO(cell << ": " << word);
  CHECK(said(clauses_of(cell), {word}) == meaning);
}

}  // namespace orrery
