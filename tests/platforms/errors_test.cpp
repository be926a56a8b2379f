#include "platforms/errors.hpp"

#include "tests/catch.hpp"

using namespace orrery;

TEST_CASE("an input error reads as one line with place, found and expected") {
  const InputError error("a.yaml:3: count", "'x'", "a number");
  CHECK(std::string(error.what()) == "a.yaml:3: count: found 'x'; expected a number");
}

TEST_CASE("the nearest name is offered only when it is near") {
  CHECK(did_you_mean("H10O", {"A100", "H100"}) == ", did you mean 'H100'?");
  CHECK(did_you_mean("H100", {"H10\n0"}) == ", did you mean 'H10\\n0'?");     // a message stays one line
  CHECK(did_you_mean("h100", {"A100", "H100"}) == ", did you mean 'H100'?");  // case costs next to nothing
  CHECK(did_you_mean("gbps", {"GBps", "Gbps"}) == ", did you mean 'Gbps'?");  // bytes are eight times as many
  CHECK(did_you_mean("zzzzzzzz", {"A100", "H100"}).empty());
  CHECK(
      did_you_mean("max_position_embeddings", {"tie_word_embeddings"}).empty());  // ten letters of 23 differ
  // Where nothing is near: what begins so, the shortest of several; three letters tell too little.
  CHECK(did_you_mean("nics", {"name", "nics_per_node_of_all", "nics_per_node"}) ==
        ", did you mean 'nics_per_node'?");
  CHECK(did_you_mean("nic", {"nic_bandwidth", "nic_latency"}).empty());
}

TEST_CASE("names are listed with commas between them") {
  CHECK(comma_list({}).empty());
  CHECK(comma_list({"A100"}) == "A100");
  CHECK(comma_list({"A100", "", "H100"}) == "A100, , H100");
}

TEST_CASE("quoted text stays on one line and short") {
  CHECK(quote_for_message("a\nb\x01") == "'a\\nb\\x01'");
  CHECK(quote_for_message(std::string(61, 'x')) == "'" + std::string(60, 'x') + "...'");
  CHECK(quote_for_message(std::string(60, 'x')) == "'" + std::string(60, 'x') + "'");
}

TEST_CASE("quoted text holds no byte that a terminal could not show") {
  CHECK(quote_for_message("a\xff") == "'a\\xff'");
  CHECK(quote_for_message("\xc3(") == "'\\xc3('");                  // the first half of a character
  CHECK(quote_for_message("\xc0\x80") == "'\\xc0\\x80'");           // a longer form than there need be
  CHECK(quote_for_message("\xed\xa0\x80") == "'\\xed\\xa0\\x80'");  // half of a pair of UTF-16
  CHECK(quote_for_message("\xc2\x9b"
                          "2J") ==
        "'\\xc2\\x9b"
        "2J'");                                                        // CSI, which clears the screen
  const std::string whole = "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80";  // of two, three and four bytes
  CHECK(quote_for_message(whole) == "'" + whole + "'");
  // The 60th byte is the first half of a character.
  CHECK(quote_for_message(std::string(59, 'x') + "\xc3\xa4") == "'" + std::string(59, 'x') + "...'");
}

TEST_CASE("names are the same when only their case differs") {
  CHECK(same_name("H100", "h100"));
  CHECK_FALSE(same_name("H100", "H1000"));
}

TEST_CASE("a broken promise is a defect that names the condition") {
  CHECK_THROWS_AS(ORRERY_ENSURE(1 == 2), Defect);
  CHECK_NOTHROW(ORRERY_ENSURE(1 == 1));
}
