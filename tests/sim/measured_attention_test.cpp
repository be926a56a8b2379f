// Which fused attention published runs had.
#include "sim/measured/measured_attention.hpp"

#include "costmodels/stacks/stack_file.hpp"
#include "tests/catch.hpp"
#include "tests/sim/measured_rows.hpp"

namespace orrery {

using test::stack_of;

TEST_CASE("attention is that of the program's date, on Blackwell of a later one than on Hopper") {
  const auto attention = [](const char* framework, const char* gpu) {
    return stack_of({{"framework", framework}, {"gpu", gpu}}).attention;
  };
  CHECK(attention("NeMo 25.02", "B200") == AttentionKernel::flash);
  CHECK(attention("NeMo 25.02", "H100") == AttentionKernel::flash);
  CHECK(attention("NeMo (26.04 container)", "GB300") == AttentionKernel::flash_2026);
  CHECK(attention("Megatron-Bridge 25.09", "GB200") == AttentionKernel::flash);
  CHECK(attention("Megatron-Bridge 25.09", "H100") == AttentionKernel::flash_2026);
  CHECK(attention("Megatron-Bridge 25.11", "GB200") == AttentionKernel::flash_2026);
  CHECK(attention("Megatron-Core (June 2025)", "B200") == AttentionKernel::flash);
  CHECK(attention("Megatron-Core", "B200") == AttentionKernel::flash_2026);
  // torchtitan copied keys and values for query heads until 27 January 2026.
  CHECK(attention("torchtitan (January 2026)", "B200") != AttentionKernel::flash2);
  CHECK(attention("torchtitan (February 2026)", "B200") == AttentionKernel::flash2);
  // From 9 October 2025 until then it took cuDNN on Hopper too, PyTorch's.
  CHECK(attention("torchtitan (September 2025)", "H200") == AttentionKernel::sdpa_2025);
  CHECK(attention("torchtitan (December 2025)", "H200") == AttentionKernel::flash);
  CHECK(attention("torchtitan (December 2025)", "A100") == AttentionKernel::sdpa_2025);
}

TEST_CASE("programs of before July 2023 ran the first FlashAttention, unless their preset says more") {
  const auto time = [](const char* framework) {
    return stack_of({{"framework", framework}, {"gpu", "A100"}}).attention_time;
  };
  CHECK(time("PyTorch FSDP (March 2023)") == 2.3);
  CHECK(time("PyTorch FSDP (2023)") == 1.0);  // of either half
  CHECK(time("PyTorch FSDP (August 2023)") == 1.0);
  CHECK(time("Megatron-LM (March 2023)") == read_stack("megatron-lm-2023").attention_time);
  // Its preset has none of its own: it counts where a run says that it had.
  CHECK(time("GPT-NeoX (2022)") == 2.3);
  CHECK(time("GPT-NeoX (2024)") == 1.0);
}

TEST_CASE("a kernel that a row names goes before its program's and its year's") {
  const auto named = [](const char* flash, const char* framework, const char* gpu) {
    return stack_of({{"flash_attn", flash}, {"framework", framework}, {"gpu", gpu}});
  };
  CHECK(named("yes (attention_backend flash)", "Megatron-LM (2026)", "GH200").attention ==
        AttentionKernel::flash2);
  for (const char* second : {"yes (FlashAttention-2)", "FlashAttention-2", "flash_attn 2", "FA2"}) {
    CHECK(named(second, "TRL (2026)", "B200").attention == AttentionKernel::flash2);
    CHECK(named(second, "Megatron-Core", "H100").attention == AttentionKernel::flash2);
  }
  for (const char* best : {"yes (FlashAttention-3)", "flash_attn 3", "FA4", "yes (cuDNN)"}) {
    CHECK(named(best, "TRL (2024)", "H100").attention == AttentionKernel::flash);
    CHECK(named(best, "TRL (2026)", "H100").attention == AttentionKernel::flash_2026);
    CHECK(named(best, "Megatron-Core (June 2025)", "H100").attention == AttentionKernel::flash_2026);
  }
  CHECK(named("", "PyTorch FSDP2, FlashAttention-3 (2026)", "H100").attention == AttentionKernel::flash_2026);
  CHECK(named("yes", "TRL without FlashAttention-3 (2024)", "H100").attention == AttentionKernel::flash2);
  // The first is 2.3 times as long whatever the year, the second never.
  for (const char* first : {"FlashAttention-1", "FlashAttention 1.0.4", "flash-attn==1.0.9", "yes (xformers)",
                            "FlashAttention (Triton)", "SDPA (memory-efficient)"})
    CHECK(named(first, "PyTorch FSDP (2024)", "A100").attention_time == 2.3);
  for (const char* second : {"FlashAttention-2", "flash-attn==2.5.8", "FlashAttention-2 (Triton)"})
    CHECK(named(second, "PyTorch FSDP (March 2023)", "A100").attention_time == 1.0);
  // A mask that is given hides no half of the scores.
  CHECK(named("yes (SDPA with a padding mask)", "TRL (2026)", "H100").attention_time == 2 * 2.3);
  CHECK(named("yes (SDPA, no mask)", "TRL (2024)", "H100").attention_time == 1.0);
  // cuDNN hides none either, where an NVIDIA container asks for it.
  for (const char* container : {"TRL (2024, NGC 24.05)", "FSDP2 (2024; container nemo 24.07)"}) {
    const SoftwareStack masked = named("yes (SDPA with a mask)", container, "H100");
    CHECK(masked.attention == AttentionKernel::flash);
    CHECK(masked.attention_time == 2.0);
    CHECK(named("yes (SDPA with a mask)", container, "A100").attention_time == 2 * 2.3);
  }
}

TEST_CASE("PyTorch's attention is cuDNN's from 2.11 on, where no version is said from 2026 on") {
  const auto attention = [](const char* framework) {
    return stack_of({{"framework", framework}, {"gpu", "H100"}}).attention;
  };
  CHECK(attention("TRL (2025)") == AttentionKernel::flash2);
  CHECK(attention("TRL (2026)") == AttentionKernel::flash_2026);
  CHECK(attention("TRL, PyTorch 2.9 FSDP2 (2026)") == AttentionKernel::flash2);
  CHECK(attention("TRL, PyTorch 2.10 FSDP2 (2026)") == AttentionKernel::flash2);
  CHECK(attention("TRL, torch 2.11 (2026)") == AttentionKernel::flash_2026);
  // Of other programs those that say a version alone: many call FlashAttention themselves.
  CHECK(attention("PyTorch 2.11 FSDP2 (2026)") == AttentionKernel::flash_2026);
  CHECK(attention("PyTorch 2.10 FSDP2 (2026)") == AttentionKernel::flash2);
  CHECK(attention("PyTorch FSDP2 (2026)") == AttentionKernel::flash2);
}

}  // namespace orrery
