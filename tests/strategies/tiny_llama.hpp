// The smallest config.json that the readers take.
#pragma once

#include <string>

namespace orrery::test {

inline const std::string kTinyLlama =
    R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 100,
  "max_position_embeddings": 32})";

}  // namespace orrery::test
