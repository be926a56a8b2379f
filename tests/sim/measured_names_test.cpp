// Names as published tables print them.
#include "sim/measured/measured_names.hpp"

#include "sim/measured/program_names.hpp"
#include "tests/catch.hpp"

namespace orrery {
namespace {

std::string card(const std::string& name, double gigabytes = 0) {
  const GpuSpec* gpu = gpu_called(name, gigabytes);
  return gpu ? gpu->name : "none";
}

}  // namespace

TEST_CASE("a program is known however its name is spelled") {
  CHECK(with_known_spelling("Deepspeed, ZeRO 3 (2024)") == "DeepSpeed ZeRO-3 (2024)");
  CHECK(with_known_spelling("DeepSpeed ZeRO stage 3") == "DeepSpeed ZeRO-3");
  CHECK(with_known_spelling("TorchTitan") == "torchtitan");
  CHECK(with_known_spelling("Megatron Bridge 25.09") == "Megatron-Bridge 25.09");
  CHECK(with_known_spelling("MCore 0.12") == "Megatron-Core 0.12");
  CHECK(with_known_spelling("NEMO/Megatron-Core 24.07") == "NeMo/Megatron-Core 24.07");
  for (const char* other : {"Nemotron's own", "DeepSpeed ZeRO-2", "Megatron", "PyTorch FSDP", ""})
    CHECK(with_known_spelling(other) == other);
  const std::map<std::string, std::string> cells{{"framework", "TORCHTITAN (2025)"}};
  CHECK(MeasuredRun(cells).text("framework") == "torchtitan (2025)");
}

TEST_CASE("cards are found under the names that tables give them") {
  CHECK(card("A100") == "A100-SXM4-80GB");
  CHECK(card("A100", 40) == "A100-SXM4-40GB");
  CHECK(card("NVIDIA A100-SXM4-40GB") == "A100-SXM4-40GB");
  CHECK(card("A100 80 GB") == "A100-SXM4-80GB");
  CHECK(card("A100 PCIe", 40) == "A100-PCIe-40GB");
  CHECK(card("NVIDIA H100 80GB HBM3") == "H100-SXM5-80GB");
  CHECK(card("H100", 96) == "H100-SXM5-96GB");
  CHECK(card("H100", 64) == "H100-SXM5-64GB");
  CHECK(card("NVIDIA A100-SXM-64GB") == "A100-SXM-64GB");
  CHECK(card("MI250X (one GCD)") == "MI250X-GCD");
  CHECK(card("NVIDIA GB10 (DGX Spark)") == "GB10");
  CHECK(card("V100-SXM3-32GB") == "V100-SXM2-32GB");
  CHECK(card("Tesla V100", 16) == "V100-SXM2-16GB");
  CHECK(card("GeForce RTX 3090", 24) == "RTX 3090");
  CHECK(card("GB200", 192) == "GB200");
  // As drivers have them, and with what is sold of a memory.
  CHECK(card("NVIDIA GH200 120GB (96 GB HBM3)") == "GH200-96GB");
  CHECK(card("NVIDIA GH200 480GB") == "GH200-96GB");
  CHECK(card("NVIDIA RTX 6000 Ada Generation") == "RTX 6000 Ada");
  CHECK(card("NVIDIA RTX PRO 6000 Blackwell Server Edition") == "RTX PRO 6000");
  CHECK(card("NVIDIA B300 SXM6 AC") == "B300-SXM");
  CHECK(card("AMD Instinct MI300X OAM") == "MI300X");
  CHECK(card("NVIDIA GeForce RTX 4090 D") == "RTX 4090 D");
  CHECK(card("B200 192GB") == "B200-SXM");
  CHECK(card("H100 94GB") == "H100-NVL-94GB");
  for (const char* other :
       {"NVIDIA H200 NVL", "A100 52GB", "NVIDIA GeForce RTX 4090 Laptop GPU", "RTX 5090 D"})
    CHECK(card(other) == "none");
  CHECK(card("DGX H100") == "H100-SXM5-80GB");
  CHECK(card("A100-40G") == "A100-SXM4-40GB");
  CHECK(card("8xA100 (80 GB)") == "A100-SXM4-80GB");
  CHECK(card("GB200 NVL72") == "GB200");
  CHECK(card("NVIDIA RTX 6000 Ada") == "RTX 6000 Ada");
  CHECK(card("NVIDIA GeForce RTX 5060 Ti", 16) == "RTX 5060Ti-16GB");
  CHECK(card("RTX 5060") == "none");  // another chip
  CHECK(card("AMD Instinct MI350X", 288) == "MI350X");
  CHECK(card("TPU v4") == "none");
  CHECK(card("A1000") == "none");
  CHECK(card("") == "none");
}

TEST_CASE("every card of the catalog is found under its own name and aliases") {
  for (const GpuSpec& gpu : gpu_catalog()) {
    CHECK(card(gpu.name) == gpu.name);
    for (const std::string& alias : gpu.aliases) CHECK(card(alias) == gpu.name);
  }
}

TEST_CASE("built-in models are found by their letters and digits") {
  CHECK(builtin_model_called("Llama-2-70B") == "llama2-70b");
  CHECK(builtin_model_called("Mixtral 8x7B") == "mixtral-8x7b");
  CHECK(builtin_model_called("Qwen3_235B_A22B (EP8)") == "qwen3-235b-a22b");
  CHECK(builtin_model_called("GPT-3 175B") == "gpt3-175b");
  CHECK(builtin_model_called("meta-llama/Meta-Llama-3.1-405B") == "llama3-405b");
  CHECK(builtin_model_called("Llama 3.3 70B") == "llama3-70b");
  CHECK(builtin_model_called("Llama-3.1-8B-Instruct") == "llama3.1-8b");
  CHECK(builtin_model_called("Qwen/Qwen2.5-7B") == "qwen2.5-7b");
  CHECK_FALSE(builtin_model_called("Llama 3.1 9B"));
  CHECK_FALSE(builtin_model_called("GPT"));
  CHECK_FALSE(builtin_model_called("Llama"));
}

}  // namespace orrery
