// Cells of tables as people write them.
#include "sim/measured/cell_text.hpp"

#include "tests/catch.hpp"

namespace orrery {

TEST_CASE("cells are matched without case, blanks and punctuation") {
  CHECK(letters_and_digits("ZeRO stage-1") == "zerostage1");
  CHECK(letters_and_digits("LLaMA 3.1 (70B)", ".") == "llama3.170b");
  CHECK(letters_and_digits("\xc3\xa9 ?", ".").empty());
  CHECK(says("megatron-lm", "tron"));
  CHECK_FALSE(says_any("megatron-lm", {"Mega", "deep"}));
  CHECK(starts_with_any("unfused", {"no", "un"}));
  CHECK_FALSE(starts_with_any("refused", {"no", "fused"}));
}

}  // namespace orrery
