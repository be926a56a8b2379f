// What the tables of each source are read as.
#include <map>

#include "tests/catch.hpp"
#include "tests/traces/profile_folder.hpp"
#include "traces/profile_reader.hpp"

using namespace orrery;

TEST_CASE("Aceso's profiles give GEMMs and kernels where nothing else is in the time") {
  const test::ProfileFolder folder;
  const std::string header =
      "source,gpu,dtype,model,mbs,tp,algo,op,fwd_us,bwd_us,input_MB,output_MB,weights_MB,activations_MB,fwd_"
      "reserved_MB,bwd_"
      "reserved_MB,status\n";
  folder.write(
      "transformer_ops_fwd_bwd_long.csv",
      header +
          "SuperScaler-Aceso,V100-32,fp16,gpt_13B,1,1,0,enc-attention-qkv,4002.383,6903.486,40,80,150.000,60,"
          "60,434,ok\n"
          "sailor,A100-40,fp16,GPT-Neo-2.7,1,1,0,enc-attention-qkv,452.995,430.012,20,40,37.500,30,30,100,"
          "ok\n"
          "sailor,A100-40,fp16,GPT-Neo-2.7,4,1,0,enc-MLP-gelu,292.188,529,200,200,0,160.000,0,750,ok\n"
          "sailor,A100-40,fp16,GPT-Neo-2.7,1,2,0,enc-attention-qkv,300,300,20,40,18.75,30,30,100,ok\n"
          "sailor,A100-40,fp32,GPT-Neo-2.7,1,1,0,enc-attention-qkv,900,900,20,40,75,30,30,100,ok\n"
          "sailor,V100-16,fp16,OPT-30,8,1,0,enc-attention-qkv,10000000,1,20,40,75,30,30,100,failed\n");
  const Profiles profiles = read_profiles(folder.name());
  REQUIRE(profiles.gemms.size() == 2);
  // 150 MiB of fp16 weights are 3 h x h at h = 5120; one sequence of 2048 tokens.
  CHECK(profiles.gemms[0].k == 5120);
  CHECK(profiles.gemms[0].n == 15360);
  CHECK(profiles.gemms[0].m == 2048);
  CHECK(profiles.gemms[0].backward->value() == Approx(6903.486e-6));
  CHECK(profiles.gemms[1].input_gradient->value() == Approx(430.012e-6));
  CHECK(profiles.gemms[1].k == 2560);
  CHECK_FALSE(profiles.gemms[1].backward);  // sailor timed the input gradient only
  REQUIRE(profiles.kernels.size() == 1);
  CHECK(profiles.kernels[0].bytes.value() == 2 * 160 * kMebi);
  CHECK(profiles.files[0].skipped.at("tensor ways, times hold a collective") == 1);
  CHECK(profiles.files[0].skipped.at("data type fp32") == 1);
  CHECK(profiles.files[0].skipped.at("status failed") == 1);
}

TEST_CASE("vidur's kernels get the bytes of their shapes, and quoted lists do not shift columns") {
  const test::ProfileFolder folder;
  folder.write("compute/h100/meta/Llama/mlp.csv",
               "time_stats.emb.mean,notes,time_stats.post_attention_layernorm.mean,time_stats.add.mean,time_"
               "stats.mlp_act.mean,n_head,n_kv_head,n_"
               "embd,n_expanded_embd,"
               "use_gated_mlp,num_tokens,num_tensor_parallel_workers,time_stats.attn_rope.mean\n"
               "0.119,\"[1, 2]\",0.02,0.031,0.139,32,32,4096,11008,True,4096,1,0.0835\n"
               "0.113,\"[1, 2]\",0.02,0.031,0.074,32,32,4096,11008,True,4096,2,0.042\n");
  const Profiles profiles = read_profiles(folder.name());
  std::map<std::string, std::vector<double>> bytes;
  for (const auto& kernel : profiles.kernels) {
    CHECK(kernel.gpu == "H100-SXM5-80GB");
    CHECK(kernel.model == "meta/Llama");
    bytes[kernel.op].push_back(kernel.bytes.value());
  }
  const double tokens = 4096;
  CHECK(bytes["residual"] == std::vector{6 * tokens * 4096});  // once: not sharded
  CHECK(bytes["activation"] == std::vector{6 * tokens * 11008, 6 * tokens * 5504});
  CHECK(bytes["rope"] == std::vector{4 * tokens * 8192, 4 * tokens * 4096});
}

TEST_CASE("published attention is read as times, and what no model has is counted") {
  const test::ProfileFolder folder;
  folder.write("flash_attention_fwd_bwd.csv",
               "source,gpu,dtype,kernel,direction,batch,heads,kv_heads,seq_q,seq_kv,head_dim,causal,tflops\n"
               "a,A100,fp16,FlashAttention-2,fwd,16,32,8,1024,1024,128,no,180.91\n"
               "a,RTX 4090,fp16,FlashAttention-2,bwd,,,,2048,2048,64,yes,96.53\n"
               "a,A100,fp16,FlashAttention-9,fwd,16,32,8,1024,1024,128,no,180\n"
               "a,Abacus,fp16,FlashAttention-2,fwd,16,32,8,1024,1024,128,no,180\n");
  const Profiles profiles = read_profiles(folder.name());
  REQUIRE(profiles.attentions.size() == 2);
  // 4 x 16 x 32 x 1024^2 x 128 FLOPs; grouped keys do not change them.
  CHECK(profiles.attentions[0].time.value() == Approx(4.0 * 16 * 32 * 1024 * 1024 * 128 / 180.91e12));
  // Not stated: 16k tokens and a hidden size of 2048, so 8 sequences and 32 heads; backward 2.5 x, half of
  // it.
  CHECK(profiles.attentions[1].batch == 8);
  CHECK(profiles.attentions[1].heads == 32);
  CHECK(profiles.attentions[1].time.value() == Approx(4.0 * 8 * 32 * 2048 * 2048 * 64 * 2.5 / 2 / 96.53e12));
  CHECK(profiles.files[0].skipped ==
        std::map<std::string, std::int64_t>{{"attention kernel FlashAttention-9", 1},
                                            {"GPU not in the catalog", 1}});
}

TEST_CASE("collectives are taken where status and links allow") {
  const test::ProfileFolder folder;
  folder.write("collectives_long.csv",
               "source,system,collective,n_ranks,ranks_per_node,bytes,time_us,rank,busbw_GBps,status\n"
               "vidur,h100_dgx,send_recv,2,1,67108864,1863,0,36,ok\n"
               "vidur,a100_dgx,all_reduce,16,8,67108864,7000,0,17,ok\n"
               "vidur,a100_pairwise_nvlink,send_recv,2,2,67108864,195,0,343,suspect\n"
               "SuperScaler-Aceso,V100-32,all_gather,8,,1048576,100,,9,ok\n");
  const Profiles profiles = read_profiles(folder.name());
  REQUIRE(profiles.collectives.size() == 2);
  CHECK(profiles.collectives[0].network.bandwidth.value() == 50e9);
  CHECK(profiles.collectives[1].bytes.value() == 8 * 1048576);  // the table holds what one rank puts in
  CHECK(profiles.collectives[1].ranks_per_node == 8);
  CHECK(profiles.files[0].skipped.at("links of the system not known") == 1);
  CHECK(profiles.files[0].skipped.at("status suspect") == 1);
}

TEST_CASE("whether vidur's MLP is gated is read in any case, and nothing else is taken for no") {
  const auto activation_bytes = [](const std::string& gated) {
    const test::ProfileFolder folder;
    folder.write("compute/h100/meta/Llama/mlp.csv",
                 "time_stats.mlp_act.mean,n_head,n_kv_head,n_embd,n_expanded_embd,use_gated_mlp,num_tokens,"
                 "num_tensor_parallel_workers,time_stats.post_attention_layernorm.mean\n"
                 "0.139,32,32,4096,11008," +
                     gated + ",4096,1,0.02\n");
    return read_profiles(folder.name()).kernels.back().bytes.value();
  };
  for (const char* yes : {"True", "true", "TRUE", "1"}) CHECK(activation_bytes(yes) == 6.0 * 4096 * 11008);
  for (const char* no : {"False", "false", "0"}) CHECK(activation_bytes(no) == 4.0 * 4096 * 11008);
  CHECK_THROWS_WITH(activation_bytes("maybe"), contains_text("2 unreadable of 2"));
}

TEST_CASE("rows of vidur's and Aceso's tables teach once") {
  const test::ProfileFolder folder;
  const auto file_of = [&](const std::string& name, const std::string& header, const std::string& row) {
    folder.write(name, header + "\n" + row + "\n" + row + "\n");
    const ProfileFile file = read_profiles(folder.name()).files.front();
    std::filesystem::remove(folder.at(name));
    return file;
  };
  const ProfileFile vidur =
      file_of("compute/h100/meta/Llama/mlp.csv",
              "time_stats.mlp_act.mean,n_head,n_kv_head,n_embd,n_expanded_embd,use_gated_mlp,num_tokens,"
              "num_tensor_parallel_workers,time_stats.post_attention_layernorm.mean",
              "0.139,32,32,4096,11008,True,4096,1,0.02");
  CHECK(vidur.used == 2);
  CHECK(vidur.skipped == std::map<std::string, std::int64_t>{{"duplicate of an earlier row", 2}});
  const ProfileFile aceso =
      file_of("transformer_ops_fwd_bwd_long.csv",
              "source,gpu,dtype,model,mbs,tp,algo,op,fwd_us,bwd_us,input_MB,weights_MB,activations_MB,status",
              "sailor,A100-40,fp16,GPT,1,1,0,enc-attention-qkv,453,430,20,37.5,30,ok");
  CHECK(aceso.used == 1);
  CHECK(aceso.skipped == std::map<std::string, std::int64_t>{{"duplicate of an earlier row", 1}});
  CHECK(aceso.first_line.at("duplicate of an earlier row") == 3);
}
