// Shapes of models that rows of published runs only name, and that are not built in.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace orrery {

struct SizedModel {
  std::string_view name;  // how a row's begins: small letters, digits and points, nothing else
  std::int64_t layers, hidden, heads;
  std::int64_t kv_heads, ffn;  // 0: as many as heads; what is usual in its family
  std::int64_t vocabulary;
  const char* source;
};

inline constexpr const char* kMegatron = "arXiv 1909.08053, table 1";
inline constexpr const char* kGpt3 = "arXiv 2005.14165, table 2.1";
inline constexpr const char* kOpt = "arXiv 2205.01068, table 1";
inline constexpr const char* kLlama1 = "arXiv 2302.13971, table 2";
inline constexpr const char* kBloom = "arXiv 2211.05100, table 3";
inline constexpr const char* kPythia = "arXiv 2304.01373, table 1";

// GPT-3's 1.3B and 13B with heads that divide their widths, as programs train them.
inline constexpr std::array kSizedModels{
    SizedModel{"gpt21.2b", 40, 1536, 16, 0, 0, 50257, kMegatron},
    SizedModel{"gpt24.2b", 64, 2304, 24, 0, 0, 50257, kMegatron},
    SizedModel{"gpt3125m", 12, 768, 12, 0, 0, 50257, kGpt3},
    SizedModel{"gpt3350m", 24, 1024, 16, 0, 0, 50257, kGpt3},
    SizedModel{"gpt3760m", 24, 1536, 16, 0, 0, 50257, kGpt3},
    SizedModel{"gpt31.3b", 24, 2048, 16, 0, 0, 50257, kGpt3},
    SizedModel{"gpt32.7b", 32, 2560, 32, 0, 0, 50257, kGpt3},
    SizedModel{"gpt36.7b", 32, 4096, 32, 0, 0, 50257, kGpt3},
    SizedModel{"gpt313b", 40, 5120, 40, 0, 0, 50257, kGpt3},
    SizedModel{"opt1.3b", 24, 2048, 32, 0, 0, 50272, kOpt},
    SizedModel{"opt2.7b", 32, 2560, 32, 0, 0, 50272, kOpt},
    SizedModel{"opt6.7b", 32, 4096, 32, 0, 0, 50272, kOpt},
    SizedModel{"opt13b", 40, 5120, 40, 0, 0, 50272, kOpt},
    SizedModel{"opt30b", 48, 7168, 56, 0, 0, 50272, kOpt},
    SizedModel{"opt66b", 64, 9216, 72, 0, 0, 50272, kOpt},
    SizedModel{"opt175b", 96, 12288, 96, 0, 0, 50272, kOpt},
    SizedModel{"bloom1b7", 24, 2048, 16, 0, 0, 250880, kBloom},
    SizedModel{"bloom3b", 30, 2560, 32, 0, 0, 250880, kBloom},
    SizedModel{"bloom7b1", 30, 4096, 32, 0, 0, 250880, kBloom},
    SizedModel{"llama7b", 32, 4096, 32, 0, 11008, 32000, kLlama1},
    SizedModel{"llama13b", 40, 5120, 40, 0, 13824, 32000, kLlama1},
    SizedModel{"llama30b", 60, 6656, 52, 0, 17920, 32000, kLlama1},
    SizedModel{"llama33b", 60, 6656, 52, 0, 17920, 32000, kLlama1},
    SizedModel{"pythia160m", 12, 768, 12, 0, 0, 50304, kPythia},
    SizedModel{"pythia410m", 24, 1024, 16, 0, 0, 50304, kPythia},
    SizedModel{"pythia1b", 16, 2048, 8, 0, 0, 50304, kPythia},
    SizedModel{"pythia1.4b", 24, 2048, 16, 0, 0, 50304, kPythia},
    SizedModel{"pythia2.8b", 32, 2560, 32, 0, 0, 50304, kPythia},
    SizedModel{"gptj6b", 28, 4096, 16, 0, 0, 50400, "its config.json"},
    SizedModel{"mpt7b", 32, 4096, 32, 0, 0, 50432, "its config.json"},
    SizedModel{"mpt30b", 48, 7168, 64, 0, 0, 50432, "its config.json"},
    SizedModel{"baichuan27b", 32, 4096, 32, 0, 11008, 125696, "its config.json"},
    SizedModel{"baichuan213b", 40, 5120, 40, 0, 13696, 125696, "its config.json"},
    SizedModel{"qwen7b", 32, 4096, 32, 0, 11008, 151936, "its config.json"},
    SizedModel{"qwen14b", 40, 5120, 40, 0, 13696, 152064, "its config.json"},
    SizedModel{"phi414b", 40, 5120, 40, 10, 17920, 100352, "its config.json"},
    SizedModel{"falcon180b", 80, 14848, 232, 8, 59392, 65024, "its config.json"},
    SizedModel{"starcoder15.5b", 40, 6144, 48, 1, 0, 49152, "arXiv 2305.06161, table 2"},
    SizedModel{"nemotron415b", 32, 6144, 48, 8, 24576, 256000, "arXiv 2402.16819, table 1"},
    SizedModel{"nemotron4340b", 96, 18432, 96, 8, 73728, 256000, "arXiv 2406.11704, table 1"},
};

}  // namespace orrery
