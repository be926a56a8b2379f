// Times of published runs from the rates they print: on rows made up for the purpose.
#include "sim/measured/measured_plan.hpp"

#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"
#include "tests/sim/measured_rows.hpp"

namespace orrery {

using test::mapped;

TEST_CASE("published rates become times") {
  const auto plan_and_seconds = [](const std::string& model, const std::string& columns,
                                   const std::string& cells) {
    const auto runs =
        parse_measured_runs("id,source_key,gpu,n_gpus,framework,seq,gbs,mbs,tp,pp,model," + columns +
                                "\na,g,A100,8,Megatron-LM,2048,64,1,8,1," + model + "," + cells + "\n",
                            "t.csv");
    MeasuredPlan plan = mapped(runs.front());
    const double seconds = *measured_seconds(runs.front(), plan);
    return std::pair(std::move(plan), seconds);
  };
  const auto seconds = [&](const std::string& columns, const std::string& cells) {
    return plan_and_seconds("GPT", "layers,hidden,heads,vocab," + columns, "24,2048,16,51200," + cells)
        .second;
  };
  const ModelSpec model =
      plan_and_seconds("GPT", "layers,hidden,heads,vocab,mfu_pct", "24,2048,16,51200,50").first.model;
  // Biases and norms are in no formula.
  const auto at_100 = [](double work) { return Approx(work / (100e12 * 8)).epsilon(1e-3); };
  CHECK(seconds("tokens_per_s_per_gpu", "1000") == Approx(64.0 * 2048 / (1000 * 8)));
  CHECK(seconds("samples_per_s", "32") == Approx(2));
  const double full = model_flops(model, 64, 2048, AttentionCounting::full);
  CHECK(seconds("tflops_per_gpu", "100") == at_100(full));
  // Of the A100's dense peak in 16 bits.
  CHECK(seconds("mfu_pct", "50") == Approx(full / (312e12 * 0.5 * 8)));
  CHECK(seconds("tflops_per_gpu,flops_convention", "100,MFU with causal attention") ==
        at_100(model_flops(model, 64, 2048, AttentionCounting::causal)));
  // 96 B s l h^2 (1 + s / 6h + V / 16lh); of selective recomputation 4 B s^2 l h more than the model's.
  const double tokens = 64.0 * 2048, hidden = 2048, layers = 24;
  const double with_all =
      96 * tokens * layers * hidden * hidden * (1 + 1.0 / 6 + 51200.0 / (16 * layers * hidden));
  const double with_attention = full + 4 * tokens * 2048 * layers * hidden;
  const std::string hardware = "tflops_per_gpu,flops_convention,recompute";
  CHECK(seconds(hardware, "100,hardware FLOPs incl. recompute,") == at_100(with_all));
  CHECK(seconds(hardware, "100,HFU,full") == at_100(with_all));
  CHECK(seconds(hardware, "100,with recomputation,selective") == at_100(with_attention));
  CHECK(seconds(hardware, "100,Hardware FLOPs,none") == at_100(full));
  CHECK(seconds(hardware, "100,model FLOPs (no recomputation),full") == at_100(full));
  CHECK(seconds("hfu_pct,recompute", "50,full") == Approx(with_all / (312e12 * 0.5 * 8)).epsilon(1e-3));
  // Six for each parameter, those of the embedding too.
  const double parameters = 6.0 * tokens * static_cast<double>(total_parameters(model));
  CHECK(seconds("tflops_per_gpu,flops_convention", "100,6ND") == at_100(parameters));
  CHECK(seconds("tflops_per_gpu,flops_convention", "100,6 * N * tokens") == at_100(parameters));
  // Its embedding is its head, so it is counted once either way; positions are 2048 more of 2048.
  CHECK(seconds("tflops_per_gpu,flops_convention", "100,6N + 12LHQT") ==
        at_100(full + 6 * tokens * 2048 * 2048));
  const double half = model_flops(model, 64, 2048, AttentionCounting::causal);
  CHECK(seconds("tflops_per_gpu,flops_convention", "100,\"6N + 12LHQT, causal\"") ==
        at_100(half + 6 * tokens * 2048 * 2048));
  for (const char* words : {"non-causal", "full attention (not causal)", "model FLOPs; not hardware",
                            "excludes recomputation", "not said; counts recomputation if any"})
    CHECK(seconds(hardware, std::string("100,") + words + ",full") == at_100(full));
  // Of the layers that are recomputed a forward more: of 6 of 24 a quarter of what all are.
  CHECK(seconds(hardware, "100,HFU,full (6 of 24 layers)") == at_100(full + (with_all - full) / 4));
  // Shared keys and gated MLPs have other FLOPs than a GPT of their width: recomputed, a third more too.
  const auto [llama, of_llama] = plan_and_seconds("llama2-70b", hardware, "100,hardware FLOPs,full");
  const double head = 6.0 * tokens * static_cast<double>(llama.model.vocabulary * llama.model.hidden);
  const auto [untied, of_untied] =
      plan_and_seconds("llama2-70b", "tflops_per_gpu,flops_convention", "100,6N + 12LHQT");
  CHECK(of_untied == at_100(model_flops(untied.model, 64, 2048, AttentionCounting::full) + head));
  CHECK(of_llama == at_100((model_flops(llama.model, 64, 2048, AttentionCounting::full) * 4 - head) / 3));
}

TEST_CASE("Megatron-LM prints half of a causal model's attention since March 2025") {
  const auto seconds = [](const std::string& framework, const std::string& convention = "") {
    const MeasuredRun run = parse_measured_runs(
                                "id,source_key,gpu,n_gpus,framework,model,seq,gbs,precision,tflops_per_gpu,"
                                "flops_convention\na,g,A100,8,\"" +
                                    framework + "\",llama2-7b,4096,64,bf16,100," + convention + "\n",
                                "made-up.csv")
                                .front();
    return measured_seconds(run, test::mapped(run)).value();
  };
  const auto at_100 = [](AttentionCounting counting) {
    return Approx(model_flops(read_model("llama2-7b"), 64, 4096, counting) / (100e12 * 8)).epsilon(1e-3);
  };
  for (const char* halved : {"Megatron-LM (June 2025)", "Megatron-Core 0.14 (2025)", "Megatron-Bridge 26.02",
                             "Primus (Megatron-Core, 2026)"})
    CHECK(seconds(halved) == at_100(AttentionCounting::causal));
  for (const char* whole : {"Megatron-LM (2024)", "NeMo/Megatron-Core 25.04", "torchtitan (2026)"})
    CHECK(seconds(whole) == at_100(AttentionCounting::full));
  CHECK(seconds("Megatron-LM (June 2025)", "full attention") == at_100(AttentionCounting::full));
  // Words that nobody knows are as none.
  CHECK(seconds("Megatron-LM (June 2025)", "Megatron's throughput") == at_100(AttentionCounting::causal));
  CHECK(seconds("Megatron-LM (2024)", "Megatron's throughput") == at_100(AttentionCounting::full));
}

TEST_CASE("a convention that nobody knows is an assumption where it makes the time") {
  const auto assumed = [](const std::string& columns, const std::string& cells) {
    return assumed_convention(
        parse_measured_runs("id,source_key,gpu,n_gpus," + columns + "\na,g,A100,8," + cells + "\n", "t.csv")
            .front());
  };
  CHECK(assumed("tflops_per_gpu,flops_convention", "100,as printed") ==
        "FLOPs 'as printed': taken as the model's, with all of the attention");
  CHECK(assumed("framework,tflops_per_gpu,flops_convention", "Megatron-LM (2026),100,as printed") ==
        "FLOPs 'as printed': taken as the model's, with half of the attention");
  CHECK_FALSE(assumed("tflops_per_gpu,flops_convention,iter_time_s", "100,as printed,2"));
  for (const char* known :
       {"", "model FLOPs", "causal", "non-causal", "6ND", "6 x 12 L h^2 + 12 L h s", "HFU"})
    CHECK_FALSE(assumed("mfu_pct,flops_convention", std::string("40,") + known));
}

TEST_CASE("a time in which no GPU could compute the model leaves its row out") {
  // Six FLOPs for each parameter of the layers and the head, attention aside, of 64 sequences on 8 GPUs.
  const double flops = 6.0 * 64 * 2048 * (12.0 * 24 * 2048 * 2048 + 51200.0 * 2048);
  const double least = flops / (8 * 312e12);
  const auto reason = [](double seconds) {
    const auto runs = parse_measured_runs(
        "id,source_key,gpu,n_gpus,framework,seq,gbs,mbs,tp,pp,model,layers,hidden,heads,vocab,iter_time_s\n"
        "a,g,A100,8,Megatron-LM,2048,64,1,8,1,GPT,24,2048,16,51200," +
            std::to_string(seconds) + "\n",
        "t.csv");
    return test::unmapped(runs.front());
  };
  CHECK(contains(reason(0.9 * least), "a time in which a GPU would compute"));
  CHECK(contains(reason(0.9 * least), "at most 312 TFLOPS"));
  CHECK(reason(1.2 * least).empty());
}

TEST_CASE("a share of the peak that is a fraction and a time of milliseconds leave their row out") {
  const auto reason = [](const std::string& column, const std::string& cell) {
    const auto runs = parse_measured_runs(
        "id,source_key,gpu,n_gpus,framework,seq,gbs,mbs,tp,pp,model,layers,hidden,heads,vocab," + column +
            "\na,g,A100,8,Megatron-LM,2048,64,1,8,1,GPT,24,2048,16,51200," + cell + "\n",
        "t.csv");
    return test::unmapped(runs.front());
  };
  CHECK(reason("mfu_pct", "0.5656") == "mfu_pct 0.5656: a fraction? Expected percent, of at least 1");
  CHECK(reason("hfu_pct", "0.41") == "hfu_pct 0.41: a fraction? Expected percent, of at least 1");
  CHECK(reason("mfu_pct", "1.5").empty());
  // Its time is said: nothing is made of the share.
  CHECK(reason("mfu_pct,iter_time_s", "0.5656,1").empty());
  // With half of the attention 6 (12 l h^2 + V h) + 6 l h s FLOPs a token.
  const double flops =
      64 * 2048.0 * (6 * (12.0 * 24 * 2048 * 2048 + 51200.0 * 2048) + 6.0 * 24 * 2048 * 2048);
  const double slowest = flops / (8 * 312e12 / 1000);
  CHECK(reason("iter_time_s", std::to_string(0.9 * slowest)).empty());
  CHECK(contains(reason("iter_time_s", std::to_string(1.1 * slowest)), "expected seconds of one iteration"));
}

TEST_CASE("a peak above its card's memory is of 1e9 bytes, which is said") {
  const auto row = [](const std::string& peak) {
    return parse_measured_runs(
               "id,source_key,gpu,gpu_mem_gb,n_gpus,framework,seq,gbs,mbs,tp,pp,model,layers,hidden,heads,"
               "vocab,"
               "peak_mem_gb\na,g,A100,80,8,Megatron-LM,2048,64,1,8,1,GPT,24,2048,16,51200," +
                   peak + "\n",
               "t.csv")
        .front();
  };
  CHECK(measured_gibibytes(row("79"), mapped(row("79"))) == 79);
  const MeasuredPlan full = mapped(row("83"));
  CHECK(*measured_gibibytes(row("83"), full) == Approx(83e9 / (1024.0 * 1024 * 1024)));
  CHECK(full.assumptions.back() == "a peak of 83 GB of 1e9 bytes, on a card of 80 GiB");
  CHECK(test::unmapped(row("85.9")).empty());  // 80 GiB, rounded
  CHECK(contains(test::unmapped(row("86")), "a peak of 86 GB on a card of 80 GiB"));
}

TEST_CASE(
    "a row takes from another of its run what it does not say of what ran, and nothing that was measured") {
  const std::string titles = "id,source_key,gpu,n_gpus,mbs,iter_time_s,status,note\n";
  MeasuredRun own = parse_measured_runs(titles + "a,g,A100,8,,,,\n", "own.csv").front();
  own.complete_from(parse_measured_runs(titles + "a,g,A800,8,4,2.5,ok,why\n", "other.csv").front());
  CHECK(own.text("gpu") == "A100");
  CHECK(own.integer("mbs") == 4);
  CHECK(own.text("iter_time_s").empty());
  CHECK(own.filled() == std::vector<std::string>{"mbs"});
}

}  // namespace orrery
